"""Value iteration on a known model: one sweep over all state-action pairs an iteration.

Q(s, a) ← r(s, a) + γ·Σ_s' P(s'|s, a)·max_b Q(s', b). Nothing is played: the batch [S, A] is the model itself, and
a step of plain SGD at rate 1 on ½(Q − target)² is the assignment.
Bellman 1957; Sutton & Barto 2018, section 4.4.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, exact, losses, tables
from rlkit.api import Env, Fraction


@dataclass(frozen=True)
class Config:
    gamma: Fraction = 0.99  # discount per step


class ValueIteration:
    name = "value_iteration"
    table: Any = tables.Table

    def __init__(self, config: Any, env: Any, network: Any) -> None:
        states, actions = tables.sizes(env, self.name)
        self.model = tables.known_model(env, self.name, "algo=q_learning")
        self.config, self.progress = config, 0.0
        # Float64, so that a sweep is exact to rounding.
        self.policy = self.table(states, actions, env.seed, dtype=torch.float64).to(env.device)
        self.buffer = buffers.Rollout(env.seed)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=1.0)

    def rollout(self, env: Env) -> TensorDict:
        """Every pair once: rows are states, columns actions, rewards what is earned on average."""
        states, actions = self.model.reward.shape
        data = {"observation": torch.arange(states)[:, None], "action": torch.arange(actions)}
        data |= {"reward": self.model.reward, "mask": ~self.model.terminal[:, None]}
        whole = {key: x.expand(states, actions).contiguous() for key, x in data.items()}
        return TensorDict(whole, batch_size=[states]).to(env.device)

    def next_values(self) -> Tensor:
        """V(s') of the successors, [S]: of the best action."""
        return self.policy.q.weight.amax(-1)

    def credit(self, rollout: TensorDict) -> TensorDict:
        target = exact.q_values(self.model, self.next_values().cpu(), self.config.gamma)
        return rollout.set("return", target.to(rollout.device))

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        q = self.policy(batch["observation"][:, 0])
        each = losses.squared_error(q, batch["return"]) * batch["mask"]
        return each.sum(), {"q": q, "delta": (batch["return"] - q).abs().amax()}


make = ValueIteration
