"""Geometric-mean policy optimisation (Zhao et al. 2025, arXiv:2507.20673): a row's ratio is the geometric mean.

The arithmetic mean of GRPO's surrogate follows its outliers, the geometric mean does not, so the clip can be wide.
Unlike GSPO it clips step by step, in log space, before it averages.
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
    clip_low: Positive = 0.4  # a step's log-ratio stays above -clip_low
    clip_high: Positive = 0.4  # and below clip_high


class GMPO(grpo.GRPO):
    unused = ("dual_clip",)

    def clipped(self, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        low, high = log_ratio < -self.config.clip_low, log_ratio > self.config.clip_high
        return torch.where(advantage > 0, high, low & (advantage < 0))

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> Tensor:
        c = self.config
        return losses.geometric_surrogate(log_ratio, batch["advantage"], batch["mask"], c.clip_low, c.clip_high)


SAME: dict[str, Any] = {"clip_low": 0.4, "clip_high": 0.4, "over": "sequence", "ratio": "token"}
PRESETS = {
    "paper": SAME | {"std_eps": 0.0},
    "trl": SAME | {"std_eps": 1e-4},
    "verl": SAME | {"std_eps": 1e-6, "kl_clip": 10.0},
}
make = GMPO
