"""Beta normalization policy optimization (Xiao et al. 2025, arXiv:2506.02864): the scale follows the policy.

GRPO divides by √(p(1 − p)) of each start's success rate p, whatever the other rates are. Here a Beta distribution is
fitted to the rates of all starts, and its density at p divides. Returns outside [0, 1] are first brought there by the
rollout's range.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from rlkit import group_scores
from rlkit.fields import Needs, NonNegative

from ._groups import SCALED, Clip, Deviation, Divisor, Groups, Over, Scale
from .grpo import GRPO

NOT_BETA = Needs("beta", False)


@dataclass(frozen=True)
class Config(Clip, Scale):
    beta: bool = True  # divide advantages by the Beta density; false: by algo.scale, as in grpo
    scale: Annotated[Divisor, NOT_BETA] = "std"
    std: Annotated[Deviation, NOT_BETA, SCALED] = "unbiased"
    std_eps: Annotated[NonNegative, NOT_BETA, SCALED] = 1e-4
    over: Over = "token"

    def __post_init__(self) -> None:
        if self.beta:
            Groups.__post_init__(self)  # the check of Scale is about a division that does not happen
        else:
            super().__post_init__()

    def advantage(self, score: Tensor) -> Tensor:
        if not self.beta:
            return super().advantage(score)
        low = torch.clamp(score.min(), max=0.0)
        return group_scores.beta_relative((score - low) / (torch.clamp(score.max(), min=1.0) - low))


make = GRPO
