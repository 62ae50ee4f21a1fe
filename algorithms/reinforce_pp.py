"""REINFORCE++ (Hu et al. 2025, arXiv:2501.03262): no critic and no group, advantages standardised over the batch.

The KL penalty is part of each step's reward, the credit is the reward to go, and the surrogate is PPO's. baseline=group
subtracts the mean of a start's attempts first (REINFORCE++-baseline) and then needs groups.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tensordict import TensorDict
from torch import Tensor

from rlkit import returns
from rlkit.api import Env
from rlkit.errors import UserError
from rlkit.fields import Count, Fraction, NonNegative

from . import grpo


@dataclass(frozen=True)
class Config(grpo.Config):
    group: Count = 1  # attempts from each start; above 1 for baseline=group
    baseline: Literal["none", "group"] = "none"  # subtract nothing, or the mean score of the start's attempts
    gamma: Fraction = 1.0  # discount per step
    over: Literal["sequence", "token", "constant"] = "token"  # what counts the same in the loss: losses.reduction
    std_eps: NonNegative = 1e-8  # added to that standard deviation
    kl: Literal["k1", "k2", "k3", "unbiased"] = "k1"  # its estimator: losses.kl_k1 ... losses.kl_unbiased
    kl_in: Literal["loss", "reward"] = "reward"  # where the penalty goes; k1 only works in the reward


class ReinforcePP(grpo.GRPO):
    least = 1
    unused = ("scale",)

    def __init__(self, config: Config, env: Env, network: Any) -> None:
        if config.baseline == "group" and config.group < 2:
            raise UserError(
                f"algo.baseline=group needs at least 2 attempts from each start, not algo.group={config.group}"
            )
        if config.baseline == "group" and config.gamma != 1:
            raise UserError("algo.baseline=group compares whole scores and discounts nothing: leave algo.gamma=1")
        super().__init__(config, env, network)

    def worth(self, rollout: TensorDict) -> Tensor:
        c, mask, reward = self.config, rollout["mask"], rollout["reward"]
        if self.in_reward:
            reward = reward - c.kl_coef * self.divergence(rollout["log_prob"], rollout) * mask
        if c.baseline == "group":
            worth = returns.group_centered(reward.sum(-1)).unsqueeze(-1).expand_as(reward)
        else:
            worth = returns.reward_to_go(reward, rollout["done"], c.gamma)
        return returns.standardize(worth, mask, c.std_eps, correction=int(c.std == "unbiased"))


SAME: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "over": "token", "gamma": 1.0, "kl": "k1", "kl_in": "reward"}
PRESETS = {
    "paper": SAME | {"std": "unbiased"},
    "verl": SAME | {"std": "unbiased", "dual_clip": 3.0},
    "openrlhf": SAME | {"std": "biased"},
}
make = ReinforcePP
