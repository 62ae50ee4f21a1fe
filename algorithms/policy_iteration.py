"""Policy iteration on a known model: evaluate a policy, make it greedy, and again.

Evaluation: Q(s, a) ← r(s, a) + γ·Σ_s' P(s'|s, a)·Q(s', π(s')), one sweep an iteration, until no pair changes by more
than `tolerance`. Improvement: π(s) ← argmax_a Q(s, a), where that is better than what π does.
Howard 1960; Sutton & Barto 2018, section 4.3.
"""

import math
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import policies
from rlkit.api import Env, Metrics, PolicyFactory
from rlkit.errors import UserError
from rlkit.fields import Fraction, Positive

from .value_iteration import Sweeps


@dataclass(frozen=True)
class Config:
    gamma: Fraction = 0.99  # discount per step, below 1, as a policy on the way may never end
    tolerance: Positive = 1e-8  # a policy counts as evaluated when no pair changes by more than this


class PolicyIteration(Sweeps):
    name = "policy_iteration"
    saved = (*Sweeps.saved, "change", "improvements", "stable")
    table = policies.PolicyTable
    config: Config
    policy: policies.PolicyTable

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        if config.gamma == 1:
            raise UserError("policy_iteration: algo.gamma=1 leaves a policy that never ends without values; give less")
        self.config = config
        super().__init__(env, config.gamma)
        self.change, self.improvements, self.stable = math.inf, 0, False

    def improve(self) -> None:
        """π ← greedy where that gains more than evaluation is off by; a policy that does not change is optimal."""
        q = self.policy.q.weight
        better = q.amax(-1) > self.policy.state_values() + self.config.tolerance
        self.policy.actions.copy_(torch.where(better, q.argmax(-1), self.policy.actions))
        self.stable, self.improvements = not bool(better.any()), self.improvements + 1

    def credit(self, rollout: TensorDict) -> TensorDict:
        if self.change <= self.config.tolerance:
            self.improve()
        rollout = super().credit(rollout)
        self.change = float((rollout["return"] - self.policy.q.weight).abs().amax())
        return rollout

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(batch)
        told = {"stable": float(self.stable), "improvements": float(self.improvements)}
        return loss, metrics | {name: torch.tensor(x) for name, x in told.items()}


make = PolicyIteration
