"""REINFORCE leave-one-out (Ahmadian et al. 2024, arXiv:2402.14740): the other attempts are the baseline.

The whole attempt is one action: its probability is the product over its steps, and the KL penalty is part of its
reward. With one update per rollout it is REINFORCE with a baseline that does not depend on the attempt itself.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from rlkit import group_scores

from ._groups import PENALIZED, Clip, Estimator, Groups, Place, Ratio
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Clip, Groups):
    ratio: Ratio = "sum"
    kl: Annotated[Estimator, PENALIZED] = "k1"
    kl_in: Annotated[Place, PENALIZED] = "reward"

    def advantage(self, score: Tensor) -> Tensor:
        return group_scores.leave_one_out(score)


make = GRPO
