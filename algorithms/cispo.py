"""CISPO, clipped importance-sampling weights (MiniMax-M1 2025, arXiv:2506.13585): clip the weight, keep the gradient.

PPO's clip takes the gradient away from the very steps that changed most. Here the clipped ratio, without gradient,
weighs −A·log π, so that no step is ever left out.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tensordict import TensorDict
from torch import Tensor

from rlkit import losses
from rlkit.fields import Positive

from . import grpo


@dataclass(frozen=True)
class Config(grpo.Config):
    clip_low: Positive = 1.0  # the weight stays above 1 - clip_low; 1 sets no lower bound, as in the paper
    clip_high: Positive = 4.0  # and below 1 + clip_high
    over: Literal["sequence", "token", "constant"] = "token"  # what counts the same in the loss: losses.reduction


class CISPO(grpo.GRPO):
    unused = ("dual_clip",)

    def clipped(self, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """Whatever its sign: the weight is clipped, not the gradient."""
        ratio = log_ratio.exp()
        return (ratio < 1 - self.config.clip_low) | (ratio > 1 + self.config.clip_high)

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> Tensor:
        c = self.config
        return losses.clipped_weight(log_ratio, log_prob, batch["advantage"], c.clip_low, c.clip_high)


SAME: dict[str, Any] = {"over": "token", "kl_coef": 0.0}
PRESETS = {
    "trl": SAME | {"clip_low": 1.0, "clip_high": 4.0, "std_eps": 1e-4, "kl": "unbiased"},  # epsilon_high=5 is the cap
    "verl": SAME | {"clip_low": 0.2, "clip_high": 0.2, "std_eps": 1e-6, "kl_clip": 10.0},
}
make = CISPO
