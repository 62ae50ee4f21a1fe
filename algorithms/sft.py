"""Supervised fine-tuning: maximize log π of demonstrated answers, the first stage of RLHF (arXiv:2203.02155).

The same loop with the roles of act and credit played by the data: every demonstrated token is worth 1.
"""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies
from rlkit.api import Algorithm, Demonstrates, Env, Metrics, PolicyFactory, Stochastic
from rlkit.errors import UserError
from rlkit.fields import Decay, Limit, NonNegative, Positive, Schedule


@dataclass(frozen=True)
class Config(policies.Optimization):
    lr: Positive = 2e-3  # learning rate
    schedule: Schedule = "linear"  # learning-rate schedule
    max_grad_norm: Limit = 1.0  # gradients are scaled down to this global norm
    beta2: Decay = 0.95  # Adam's second-moment decay
    weight_decay: NonNegative = 0.1  # decoupled weight decay, on matrices only


def shows(env: Env) -> Demonstrates:
    """The environment, if it has demonstrations."""
    if not isinstance(env, Demonstrates):
        raise UserError("sft needs demonstrations and this environment has none; use env=gsm8k")
    return env


class SFT(Algorithm):
    config: Config
    policy: Stochastic

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        shows(env)
        self.config = config
        self.policy = network.actor(env)
        self.buffer = buffers.Rollout(env.seed)
        self.optimizer = policies.adam(self.policy, config)

    def check_demonstrations(self, env: Env) -> None:
        before = env.state_dict()
        shows(env).demonstrations(self.policy, rows=1)
        env.load_state_dict(before)

    def rollout(self, env: Env) -> TensorDict:
        return shows(env).demonstrations(self.policy, self.progress)  # [B, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        return rollout.set("advantage", torch.where(rollout["mask"], 1.0, 0.0))

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        now = self.policy.evaluate(batch)
        each = losses.policy_gradient(now["log_prob"], batch["advantage"])
        return (each * batch["weight"]).sum(), {"nll": -now["log_prob"], "entropy": now["entropy"]}


make = SFT
