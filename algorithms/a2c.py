"""Advantage actor-critic, synchronous (Mnih et al. 2016, arXiv:1602.01783): a critic gives the credit, one update each.

A few steps of every row, one optimizer step on all of them: −A·log π, a value loss, an entropy bonus. Three advantages:
mc   (Σ_k γ^k·r_{t+k}, then V where the rollout ends) − V(s_t): what the rollout saw, unbiased and of high variance
td   r_t + γ·V(s_{t+1}) − V(s_t): one step and the critic, biased and of low variance
gae  Σ_k (γλ)^k·δ_{t+k}, in between (arXiv:1506.02438): λ = 1 is mc, λ = 0 is td
On text an episode is a completion and the critic a value head. It is PPO with one epoch, one minibatch and no clip.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory, Stochastic
from rlkit.fields import CONTROL, Choose, Count, Decay, Fraction, Needs, NonNegative, Positive, Switch

Horizon = Annotated[Count | None, Needs(CONTROL), Choose(5, 8, 16, 32, 64)]
Credit = Annotated[Literal["mc", "td", "gae"], Choose("mc", "gae")]


@dataclass(frozen=True)
class Config(policies.Optimization):
    lr: Positive = 7e-4  # learning rate
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"  # optimizer
    beta2: Decay = 0.99  # second-moment decay of either optimizer
    adam_eps: Positive = 1e-5  # ε of either optimizer
    horizon: Horizon = 5  # steps per row; none, and always on text: whole episodes
    advantage: Credit = "mc"  # Monte Carlo (mc), one-step TD error (td), or GAE with gae_lambda (gae)
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Annotated[Fraction, Needs("advantage", "gae")] = 0.95  # λ of GAE; 0 equals td, 1 equals mc
    value_coef: NonNegative = 0.5  # weight of the value loss
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus
    normalize_advantage: Switch = False  # standardize over each rollout
    normalize_reward: Switch = False  # divide rewards by the running standard deviation of the discounted return


class A2C(Algorithm):
    saved = (*Algorithm.saved, "reward_scale")
    config: Config
    policy: Stochastic

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        policies.refuse_stored(env, "a2c")
        self.config = config
        self.policy = network.actor_critic(env)
        policies.check_rollout(env, "algo.horizon", config.horizon, config.horizon, policy=self.policy)
        if config.normalize_advantage:
            policies.refuse_alone(env, config.horizon, "algo.normalize_advantage", "false")
        scale = policies.RewardScale(env.rows, config.gamma, env.device)
        self.reward_scale = scale if config.normalize_reward else None
        self.buffer = buffers.Rollout(env.seed, whole_rows=not self.policy.memoryless)
        make_optimizer = policies.rmsprop if config.optimizer == "rmsprop" else policies.adam
        self.optimizer = make_optimizer(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, steps=self.config.horizon if env.kind == "control" else None)

    def credit(self, rollout: TensorDict) -> TensorDict:
        c, r = self.config, rollout
        reward = self.reward_scale(r) if self.reward_scale is not None else r["reward"]
        lam = {"mc": 1.0, "td": 0.0, "gae": c.gae_lambda}[c.advantage]
        ends, values = (r["terminated"], r["done"]), (r["value"], r["next_value"])
        advantage, target = returns.gae(reward, *values, *ends, c.gamma, lam, r["mask"])
        if c.normalize_advantage:
            advantage = returns.standardize(advantage, r["mask"])
        return rollout.update({"advantage": advantage, "return": target})

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        c, now = self.config, self.policy.evaluate(batch)
        value = losses.squared_error(now["value"], batch["return"])
        surrogate = losses.policy_gradient(now["log_prob"], batch["advantage"])
        each = losses.plus(losses.plus(surrogate, value, c.value_coef), now["entropy"], -c.entropy_coef)
        return losses.weighted(each, batch["weight"]), {"entropy": now["entropy"], "value_loss": value}


make = A2C
