"""REINFORCE (Williams 1992, doi:10.1007/BF00992696): the return gives the credit, whole episodes, one step per rollout.

Three weights for log π(a_t|s_t): the episode's total return, the reward to go (what came before t cannot be t's doing:
same expectation, less variance), and either of them minus the batch's mean as a baseline.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Env, Fraction, NonNegative


@dataclass(frozen=True)
class Config(policies.Optimization):
    gamma: Fraction = 0.99  # discount per step
    returns: Literal["total", "reward_to_go"] = "reward_to_go"  # what multiplies log π(a|s)
    baseline: Literal["none", "batch"] = "batch"  # subtract the batch's mean, or nothing
    normalize_advantage: bool = True  # divide by the batch's standard deviation (with baseline=batch)
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus


class Reinforce:
    def __init__(self, config: Config, env: Env, network: Any) -> None:
        policies.refuse_stored(env, "reinforce")
        self.config, self.progress = config, 0.0
        self.policy = policies.actor(env, network)
        self.buffer = buffers.Rollout(env.seed, whole_rows=not self.policy.memoryless)
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy)  # [B, T], whole episodes

    def credit(self, rollout: TensorDict) -> TensorDict:
        c, reward, mask = self.config, rollout["reward"], rollout["mask"]
        if c.returns == "total":
            advantage = returns.total_return(reward, mask, c.gamma)
        else:
            advantage = returns.reward_to_go(reward, rollout["done"], c.gamma)
        if c.baseline == "batch" and c.normalize_advantage:
            advantage = returns.standardize(advantage, mask)
        elif c.baseline == "batch":
            advantage = advantage - advantage[mask].mean()
        return rollout.set("advantage", torch.where(mask, advantage, 0.0))

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        now = self.policy.evaluate(batch)
        each = losses.policy_gradient(now["log_prob"], batch["advantage"]) - self.config.entropy_coef * now["entropy"]
        return (each * batch["weight"]).sum(), {"entropy": now["entropy"]}


make = Reinforce
