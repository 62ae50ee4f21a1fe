"""Supervised fine-tuning: maximise log π of demonstrated answers, the first stage of RLHF (arXiv:2203.02155).

The same loop with the roles of act and credit played by the data: every demonstrated token is worth 1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies
from rlkit.api import NonNegative, Positive, Schedule, UserError


@dataclass(frozen=True)
class Config(policies.Optimization):
    lr: Positive = 2e-3  # learning rate
    schedule: Schedule = "linear"  # of the learning rate
    max_grad_norm: Positive = 1.0  # gradients are scaled down to this global norm
    beta2: Positive = 0.95  # Adam's second-moment decay
    weight_decay: NonNegative = 0.1  # decoupled, on matrices only


class SFT:
    def __init__(self, config: Config, env: Any, network: Any) -> None:
        if not hasattr(env, "demonstrations"):
            raise UserError("sft needs demonstrations and this environment has none; use env=gsm8k")
        self.config, self.progress = config, 0.0
        self.policy = policies.actor(env, network)
        self.buffer = buffers.Rollout(env.seed)
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Any) -> TensorDict:
        return env.demonstrations(self.policy, self.progress)  # [B, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        return rollout.set("advantage", torch.where(rollout["mask"], 1.0, 0.0))

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        now = self.policy.evaluate(batch)
        each = losses.policy_gradient(now["log_prob"], batch["advantage"])
        return (each * batch["weight"]).sum(), {"nll": -now["log_prob"], "entropy": now["entropy"]}


make = SFT
