"""CISPO, clipped importance-sampling weights (MiniMax-M1 2025, arXiv:2506.13585): clip the weight, keep the gradient.

PPO's clip takes the gradient away from the very steps that changed most. Here the clipped ratio, without gradient,
weighs −A·log π, so that no step is ever left out.
"""

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from rlkit import losses

from ._groups import Clipping, Over, Scale
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Scale):
    clip_low: Clipping = 1.0  # lower bound of the weight, 1 − clip_low; 1 sets no lower bound, as in the paper
    clip_high: Clipping = 4.0  # upper bound of the weight, 1 + clip_high
    over: Over = "token"

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """Clipped is a weight, whatever the sign of its advantage; its gradient never is."""
        ratio = log_ratio.exp()
        clipped = (ratio < 1 - self.clip_low) | (ratio > 1 + self.clip_high)
        return losses.clipped_weight(log_ratio, log_prob, batch["advantage"], self.clip_low, self.clip_high), clipped


make = GRPO
