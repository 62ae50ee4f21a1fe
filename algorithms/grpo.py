"""Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300): the group gives the credit.

G attempts from each start are scored and compared with each other, so no critic is needed; the surrogate is PPO's. The
optional KL penalty to the frozen starting policy is added to the loss, not to the reward. A start is a prompt, or the
reset state of a control environment.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Count, Env, NonNegative, Positive, UserError


@dataclass(frozen=True)
class Config(policies.Optimization):
    group: Count = 8  # G attempts from each start, at least 2
    epochs: Count = 1  # passes over each rollout; above 1 the later ones are off-policy
    minibatches: Count = 1  # parts of each pass, one optimiser step each
    clip_low: Positive = 0.2  # the ratio stays above 1 - clip_low
    clip_high: Positive = 0.2  # and below 1 + clip_high
    scale: Literal["std", "none"] = "std"  # divide a group's advantages by their standard deviation, or not
    over: Literal["sequence", "token", "constant"] = "sequence"  # what counts the same in the loss: losses.reduction
    length: Count = 128  # the divisor of over=constant, in steps
    kl_coef: NonNegative = 0.0  # β of the KL penalty to the starting policy
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus


class GRPO:
    def __init__(self, config: Config, env: Env, network: Any) -> None:
        if config.group < 2:
            raise UserError(f"algo.group={config.group}: a group is its own baseline and needs at least 2 attempts")
        policies.refuse_stored(env, "grpo")
        self.config, self.progress = config, 0.0
        self.policy = policies.actor(env, network)
        self.reference = policies.frozen_copy(self.policy) if config.kl_coef else None
        linear = not config.kl_coef and not config.entropy_coef
        self.buffer = buffers.Rollout(
            env.seed, config.epochs, config.minibatches, over=config.over, length=config.length, drop_flat=linear
        )
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, repeats=self.config.group)  # [P, G, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        relative = returns.group_relative if self.config.scale == "std" else returns.group_centered
        advantage = relative(rollout["score"]).unsqueeze(-1).expand_as(rollout["reward"])
        rollout = buffers.flatten_groups(rollout.set("advantage", advantage * rollout["mask"]))  # [B, T]
        if self.reference is not None:
            reference = buffers.in_parts(self.reference.evaluate, rollout, self.policy.micro_steps)
            rollout["ref_log_prob"] = reference["log_prob"]
        return rollout

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        c, now = self.config, self.policy.evaluate(batch)
        log_ratio = now["log_prob"] - batch["log_prob"]
        each = losses.clipped_surrogate(log_ratio, batch["advantage"], c.clip_low, c.clip_high)
        metrics = {
            "kl": losses.kl_k3(batch["log_prob"], now["log_prob"]),
            "clip_fraction": losses.clipped(log_ratio, batch["advantage"], c.clip_low, c.clip_high),
            "entropy": now["entropy"],
        }
        if self.reference is not None:
            metrics["ref_kl"] = losses.kl_k3(now["log_prob"], batch["ref_log_prob"])
            each = each + c.kl_coef * metrics["ref_kl"]
        each = each - c.entropy_coef * now["entropy"]
        return (each * batch["weight"]).sum(), metrics


make = GRPO
