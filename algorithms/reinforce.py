"""REINFORCE (Williams 1992, doi:10.1007/BF00992696): the return gives the credit, whole episodes, one step per rollout.

What multiplies log π(a_t|s_t) is the episode's total return, or the reward to go (what came before t cannot be t's
doing: same expectation, less variance), minus a baseline that does not depend on the action: nothing, the batch's mean,
or a learned value V(s_t).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory, Stochastic
from rlkit.fields import Choose, Fraction, Needs, NonNegative

Baseline = Annotated[Literal["none", "batch", "value"], Choose("batch", "value")]


@dataclass(frozen=True)
class Config(policies.Optimization):
    gamma: Fraction = 0.99  # discount per step
    returns: Literal["total", "reward_to_go"] = "reward_to_go"  # return that multiplies log π(a|s)
    baseline: Baseline = "batch"  # baseline: none, the mean of the batch, or a learned V(s)
    normalize_advantage: Annotated[bool, Needs("baseline", "batch", "value")] = True  # standardize advantages
    value_coef: Annotated[NonNegative, Needs("baseline", "value")] = 0.5  # weight of the value loss
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus


class Reinforce(Algorithm):
    config: Config
    policy: Stochastic

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        policies.refuse_stored(env, "reinforce")
        self.config = config
        self.policy = network.actor_critic(env) if config.baseline == "value" else network.actor(env)
        policies.check_rollout(env, "", None, None, policy=self.policy)
        if config.baseline == "batch":
            policies.refuse_alone(env, None, "algo.baseline", "none")
        elif config.baseline == "value" and config.normalize_advantage:
            policies.refuse_alone(env, None, "algo.normalize_advantage", "false")
        self.buffer = buffers.Rollout(env.seed, whole_rows=not self.policy.memoryless)
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy)  # [B, T], whole episodes

    def credit(self, rollout: TensorDict) -> TensorDict:
        c, reward, mask = self.config, rollout["reward"], rollout["mask"]
        advantage = to_go = returns.reward_to_go(reward, rollout["done"], c.gamma, mask)
        if c.returns == "total":
            advantage = returns.total_return(reward, mask, c.gamma, rollout["done"])
        if c.baseline == "value":
            rollout["return"] = to_go  # V(s) is what is still to come, whatever multiplies log π
            advantage = advantage - rollout["value"]
        if c.baseline != "none" and c.normalize_advantage:
            advantage = returns.standardize(advantage, mask)
        elif c.baseline == "batch":
            advantage = advantage - advantage[mask].mean()
        return rollout.set("advantage", torch.where(mask, advantage, 0.0))

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        c, now = self.config, self.policy.evaluate(batch)
        each = losses.policy_gradient(now["log_prob"], batch["advantage"])
        each = losses.plus(each, now["entropy"], -c.entropy_coef)
        metrics: Metrics = {"entropy": now["entropy"]}
        if c.baseline == "value":
            metrics["value_loss"] = value = losses.squared_error(now["value"], batch["return"])
            each = losses.plus(each, value, c.value_coef)
        return losses.weighted(each, batch["weight"]), metrics


make = Reinforce
