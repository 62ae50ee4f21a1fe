"""REINFORCE++ (Hu et al. 2025, arXiv:2501.03262): no critic and no group, advantages standardized over the batch.

The KL penalty is part of each step's reward, the credit is the reward to go, and the surrogate is PPO's. baseline=group
subtracts the mean of a start's attempts first (REINFORCE++-baseline) and then needs groups.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from tensordict import TensorDict
from torch import Tensor

from rlkit import returns
from rlkit.errors import UserError
from rlkit.fields import Count, Fraction, NonNegative

from ._groups import PENALIZED, Clip, Deviation, Estimator, Groups, Over, Place
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Clip, Groups):
    group: Count = 1  # attempts from each start; above 1 for baseline=group
    baseline: Literal["none", "group"] = "none"  # baseline: none, or the mean score of the group
    gamma: Fraction = 1.0  # discount per step
    over: Over = "token"
    std: Deviation = "unbiased"  # standard deviation with n − 1 (unbiased) or n (biased)
    std_eps: NonNegative = 1e-8  # added to the standard deviation
    kl: Annotated[Estimator, PENALIZED] = "k1"
    kl_in: Annotated[Place, PENALIZED] = "reward"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline == "group" and self.group < 2:
            raise UserError(
                f"algo.baseline=group needs at least 2 attempts from each start, not algo.group={self.group}"
            )
        if self.baseline == "group" and self.gamma != 1:
            raise UserError("algo.baseline=group compares whole scores and discounts nothing: leave algo.gamma=1")


class ReinforcePP(GRPO):
    config: Config

    def worth(self, rollout: TensorDict) -> Tensor:
        c, mask, reward = self.config, rollout["mask"], rollout["reward"]
        if c.baseline == "group":
            worth = super().worth(rollout).expand_as(reward)
        else:
            if c.in_reward:
                reward = reward - c.kl_coef * c.divergence(rollout["log_prob"], rollout) * mask
            worth = returns.reward_to_go(reward, rollout["done"], c.gamma, mask)
        return returns.standardize(worth, mask, c.std_eps, correction=int(c.std == "unbiased"))


make = ReinforcePP
