"""Soft adaptive policy optimization (Gao et al. 2025, arXiv:2511.20347): a smooth gate in place of the clip.

A step whose ratio leaves 1 fades out instead of being cut off, and faster where its advantage is negative, since
pushing one token down lifts all the others.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import losses
from rlkit.fields import Positive

from ._groups import MOVED, Scale
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Scale):
    tau_positive: Annotated[Positive, MOVED] = 1.0  # how fast the gate closes where the advantage is positive
    tau_negative: Annotated[Positive, MOVED] = 1.05  # how fast the gate closes where the advantage is negative

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """Nothing is clipped: the gate only closes."""
        each = losses.soft_gated(log_ratio, batch["advantage"], self.tau_positive, self.tau_negative)
        return each, torch.zeros_like(batch["mask"])


make = GRPO
