"""Beta normalization policy optimization (Xiao et al. 2025, arXiv:2506.02864): the scale follows the policy.

GRPO divides by √(p(1 − p)) of each start's success rate p, whatever the other rates are. Here a Beta distribution is
fitted to the rates of all starts, and its density at p divides. Returns outside [0, 1] are first brought there by the
rollout's range.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rlkit import group_scores
from rlkit.errors import UserError

from ._groups import Clip, Groups, Over, Scale
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Clip, Scale):
    beta: bool = True  # divide by the Beta density; false: by what algo.scale says, as in grpo
    over: Over = "token"

    def __post_init__(self) -> None:
        if not self.beta:
            super().__post_init__()
            return
        Groups.__post_init__(self)  # the check of Scale is about a division that does not happen
        if (self.scale, self.std, self.std_eps) != (Scale.scale, Scale.std, Scale.std_eps):
            raise UserError("algo.scale, algo.std and algo.std_eps do nothing unless algo.beta=false: leave them out")

    def advantage(self, score: Tensor) -> Tensor:
        if not self.beta:
            return super().advantage(score)
        low = torch.clamp(score.min(), max=0.0)
        return group_scores.beta_relative((score - low) / (torch.clamp(score.max(), min=1.0) - low))


make = GRPO
