"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347): a critic gives the credit.

GAE advantages (arXiv:1506.02438), the clipped surrogate, an optionally clipped value loss, an entropy bonus. On text
the critic is a value head on the language model, an episode is a completion, and nothing else changes.
"""

from dataclasses import dataclass
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Count, Env, Fraction, NonNegative, Positive, Schedule


@dataclass(frozen=True)
class Config(policies.Optimization):
    horizon: Count | None = 128  # steps per row and rollout; none plays whole episodes
    epochs: Count = 4  # passes over each rollout
    minibatches: Count = 4  # parts of each pass, one optimiser step each
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Fraction = 0.95  # 0: one-step TD error, 1: Monte-Carlo advantage
    clip: Positive = 0.2  # the ratio stays within 1 ± clip
    clip_schedule: Schedule = "constant"  # constant, or linear to 0 at the end of the run
    value_coef: NonNegative = 0.5  # weight of the value loss
    value_clip: Positive | None = None  # the value may move this far from the old one; none: anywhere
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus
    normalize_advantage: bool = True  # standardise over each rollout


class PPO:
    def __init__(self, config: Config, env: Env, network: Any) -> None:
        policies.refuse_stored(env, "ppo")
        self.config, self.progress = config, 0.0
        self.policy = policies.actor_critic(env, network)
        self.buffer = buffers.Rollout(env.seed, config.epochs, config.minibatches, not self.policy.memoryless)
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, steps=self.config.horizon)  # [B, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        c, r = self.config, rollout
        advantage, target = returns.gae(
            r["reward"], r["value"], r["next_value"], r["terminated"], r["done"], c.gamma, c.gae_lambda
        )
        if self.config.normalize_advantage:
            advantage = returns.standardize(advantage, rollout["mask"])
        return rollout.update({"advantage": advantage, "return": target})

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        c, now = self.config, self.policy.evaluate(batch)
        clip = c.clip * (1 - self.progress if c.clip_schedule == "linear" else 1)
        log_ratio = now["log_prob"] - batch["log_prob"]
        surrogate = losses.clipped_surrogate(log_ratio, batch["advantage"], clip, clip)
        if c.value_clip is None:
            value = losses.squared_error(now["value"], batch["return"])
        else:
            value = losses.clipped_value(now["value"], batch["value"], batch["return"], c.value_clip)
        each = surrogate + c.value_coef * value - c.entropy_coef * now["entropy"]
        return (each * batch["weight"]).sum(), {
            "kl": losses.kl_k3(batch["log_prob"], now["log_prob"].detach()),
            "clip_fraction": losses.clipped(log_ratio.detach(), batch["advantage"], clip, clip),
            "entropy": now["entropy"],
            "value_loss": value,
        }


make = PPO
