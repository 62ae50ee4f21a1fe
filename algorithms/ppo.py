"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347): a critic gives the credit.

GAE advantages (arXiv:1506.02438), the clipped surrogate, an optionally clipped value loss, an entropy bonus. On text
the critic is a value head on the language model, an episode is a completion, and nothing else changes. For RLHF each
step may pay for leaving the starting policy, r_t −= β·(log π_b − log π_ref), with a fixed or an adaptive β
(Ziegler et al. 2019, arXiv:1909.08593).
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, divergences, losses, policies, returns
from rlkit.api import Algorithm, Elementwise, Env, Metrics, PolicyFactory, Stochastic
from rlkit.errors import UserError
from rlkit.fields import (
    AGAIN,
    CONTROL,
    INEXACT,
    Choose,
    Count,
    Fraction,
    Limit,
    Needs,
    NonNegative,
    Positive,
    Schedule,
    Search,
    Switch,
)

MOVED = Needs(AGAIN)
Falls = Annotated[Schedule, MOVED, Needs("clip", but=math.inf)]
Clipped = Annotated[Limit | None, MOVED, Needs("value_coef")]
Horizon = Annotated[Count | None, Needs(CONTROL), Choose(16, 32, 64, 128, 256, 512)]


@dataclass(frozen=True)
class Config(policies.Optimization):
    horizon: Horizon = 128  # steps per row; none, and always on text: whole episodes
    epochs: Annotated[Count, Search(1, 20)] = 4  # passes over each rollout
    minibatches: Annotated[Count, Choose(1, 2, 4, 8, 16, 32)] = 4  # minibatches of each pass, one optimizer step each
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Fraction = 0.95  # 0: one-step TD error, 1: Monte-Carlo advantage
    clip: Annotated[Limit, MOVED, Choose(0.1, 0.2, 0.3, 0.4)] = 0.2  # clip range: the ratio is clipped to 1 ± clip
    clip_schedule: Falls = "constant"  # schedule of clip: constant, or linear to 0 at the end
    value_coef: NonNegative = 0.5  # weight of the value loss
    value_clip: Clipped = None  # clip range of the value around the old one; none: no clipping
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus
    normalize_advantage: bool = True  # standardize over each rollout
    normalize_reward: Switch = False  # divide rewards by the running standard deviation of the discounted return
    sampler_cap: Annotated[Limit | None, Needs(INEXACT)] = 2.0  # bound of the sampler's weight π/μ; none: 1
    kl_coef: NonNegative = 0.0  # β: weight of the KL penalty in the reward, against the starting policy
    kl_target: Annotated[Positive | None, Needs("kl_coef")] = None  # adapt β so that the KL of a row is this, in nats
    kl_horizon: Annotated[Count, Needs("kl_target")] = 10_000  # rows over which β adapts: smaller is faster


class PPO(Algorithm):
    saved = (*Algorithm.saved, "reference", "reward_scale", "kl_coef")
    config: Config
    policy: Stochastic

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        policies.refuse_stored(env, "ppo")
        if config.kl_target and env.rows > config.kl_horizon:
            raise UserError(
                f"algo.kl_horizon={config.kl_horizon} is less than env.rows={env.rows}, what one iteration plays: "
                f"give algo.kl_horizon={env.rows} or more"
            )
        self.config, self.kl_coef = config, float(config.kl_coef)
        self.policy = network.actor_critic(env)
        policies.check_rollout(env, "algo.horizon", config.horizon, config.horizon, policy=self.policy)
        if config.normalize_advantage:
            policies.refuse_alone(env, config.horizon, "algo.normalize_advantage", "false")
        self.reference = policies.reference(self.policy) if config.kl_coef else None
        policies.refuse_old_memory(self.policy, config.kl_coef, config.horizon)
        scale = policies.RewardScale(env.rows, config.gamma, env.device)
        self.reward_scale = scale if config.normalize_reward else None
        whole = not self.policy.memoryless
        self.buffer = buffers.Rollout(
            env.seed, config.epochs, config.minibatches, whole, sampler_cap=config.sampler_cap
        )
        self.clip_width = config.clip
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, steps=self.config.horizon if env.kind == "control" else None)

    def credit(self, rollout: TensorDict) -> TensorDict:
        c, r = self.config, rollout
        reward = r["reward"] if self.reward_scale is None else self.reward_scale(r)
        if self.reference is not None:
            reward = reward - self.kl_penalty(self.reference, r)
        advantage, target = returns.gae(
            reward, r["value"], r["next_value"], r["terminated"], r["done"], c.gamma, c.gae_lambda, r["mask"]
        )
        if c.normalize_advantage:
            advantage = returns.standardize(advantage, r["mask"])
        return rollout.update({"advantage": advantage, "return": target})

    def kl_penalty(self, frozen: Stochastic, rollout: TensorDict) -> Tensor:
        """β·(log π_b − log π_ref) at each step; then β ← β·(1 + clip(KL/target − 1, ±0.2)·rows/horizon). [B, T]"""
        c, mask = self.config, rollout["mask"]
        ref = buffers.in_parts(frozen.evaluate, rollout, self.policy.micro_steps, entropy=False)["log_prob"]
        rollout["ref_log_prob"] = ref = divergences.beyond_rounding(rollout["log_prob"], ref, mask)
        kl = divergences.kl_k1(rollout["log_prob"], ref) * mask
        penalty: Tensor = self.kl_coef * kl
        rollout["kl_coef"] = torch.full_like(penalty, self.kl_coef)  # the weight that this rollout used, for the log
        if c.kl_target is not None:
            rows = int(mask.any(-1).sum())
            error = float(kl.sum()) / max(rows, 1) / c.kl_target - 1
            self.kl_coef *= 1 + min(max(error, -0.2), 0.2) * rows / c.kl_horizon
        return penalty

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        c, now = self.config, self.policy.evaluate(batch)
        clip = c.clip * (1 - self.progress if c.clip_schedule == "linear" else 1)
        log_ratio = losses.log_ratio(now["log_prob"], batch["log_prob"])
        surrogate = losses.clipped_surrogate(log_ratio, batch["advantage"], clip, clip)
        if c.value_clip is None:
            value = losses.squared_error(now["value"], batch["return"])
        else:
            value = losses.clipped_value(now["value"], batch["value"], batch["return"], c.value_clip)
        each = losses.plus(surrogate, value, c.value_coef)
        each = losses.plus(each, now["entropy"], -c.entropy_coef)
        metrics: Metrics = {
            "kl": Elementwise(divergences.kl_k3, (batch["log_prob"], now["log_prob"])),
            "clip_fraction": Elementwise(partial(losses.clipped, low=clip, high=clip), (log_ratio, batch["advantage"])),
            "entropy": now["entropy"],
            "value_loss": value,
            "ratio": Elementwise(torch.exp, (log_ratio,)),
        }
        if self.reference is not None:
            metrics["ref_kl"] = divergences.kl_k1(batch["log_prob"], batch["ref_log_prob"])
            metrics["kl_coef"] = batch["kl_coef"]
        return losses.weighted(each, batch["weight"]), metrics


make = PPO
