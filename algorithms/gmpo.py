"""Geometric-mean policy optimization (Zhao et al. 2025, arXiv:2507.20673): a row's ratio is the geometric mean.

The arithmetic mean of GRPO's surrogate follows its outliers, the geometric mean does not, so the clip can be wide.
Unlike GSPO it clips step by step, in log space, before it averages.
"""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import losses

from ._groups import Clipping, Scale
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Scale):
    clip_low: Clipping = 0.4  # lower clip: a step's log-ratio is clipped at −clip_low
    clip_high: Clipping = 0.4  # upper clip: a step's log-ratio is clipped at clip_high

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> tuple[Tensor, Tensor]:
        advantage = batch["advantage"]
        low, high = log_ratio < -self.clip_low, log_ratio > self.clip_high
        each = losses.geometric_surrogate(log_ratio, advantage, batch["mask"], self.clip_low, self.clip_high)
        return each, torch.where(advantage > 0, high, low & (advantage < 0))


make = GRPO
