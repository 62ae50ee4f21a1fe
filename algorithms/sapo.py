"""Soft adaptive policy optimisation (Gao et al. 2025, arXiv:2511.20347): a smooth gate in place of the clip.

A step whose ratio leaves 1 fades out instead of being cut off, and faster where its advantage is negative, since
pushing one token down lifts all the others.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import losses
from rlkit.fields import Positive

from . import grpo


@dataclass(frozen=True)
class Config(grpo.Config):
    tau_positive: Positive = 1.0  # how fast the gate closes where the advantage is positive
    tau_negative: Positive = 1.05  # and where it is negative


class SAPO(grpo.GRPO):
    unused = ("dual_clip", "clip_low", "clip_high")

    def clipped(self, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """Nothing is: the gate only closes."""
        return torch.zeros_like(advantage, dtype=torch.bool)

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> Tensor:
        return losses.soft_gated(log_ratio, batch["advantage"], self.config.tau_positive, self.config.tau_negative)


SAME: dict[str, Any] = {"tau_positive": 1.0, "tau_negative": 1.05, "over": "sequence"}
PRESETS = {
    "paper": SAME | {"std_eps": 0.0},
    "trl": SAME | {"std_eps": 1e-4, "kl": "unbiased"},
    "verl": SAME | {"std_eps": 1e-6, "kl_clip": 10.0},
}
make = SAPO
