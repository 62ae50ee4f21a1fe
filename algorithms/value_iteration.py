"""Value iteration on a known model: one sweep over all state-action pairs an iteration.

Q(s, a) ← r(s, a) + γ·Σ_s' P(s'|s, a)·max_b Q(s', b). Nothing is played: the batch [S, A] is the model itself, and
a step of plain SGD at rate 1 on ½(Q − target)² is the assignment.
Bellman 1957; Sutton & Barto 2018, section 4.4.
"""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, exact, losses, policies
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory
from rlkit.fields import Fraction


@dataclass(frozen=True)
class Config:
    gamma: Fraction = 0.99  # discount per step


class Sweeps(Algorithm):
    """Shared by value and policy iteration: the model as one batch, and the step that assigns the target."""

    name: str
    table: type[policies.Table] = policies.Table
    policy: policies.Table

    def __init__(self, env: Env, gamma: float) -> None:
        states, actions = policies.sizes(env, self.name, masks=True)
        self.model, self.gamma = policies.known_model(env, self.name, "algo=q_learning"), gamma
        # Float64, so that a sweep is exact to rounding.
        self.policy = self.table(states, actions, env.seed, dtype=torch.float64).to(env.device)
        self.buffer = buffers.Rollout(env.seed)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=1.0)

    def rollout(self, env: Env) -> TensorDict:
        """Every state-action pair once, [S, A]: rows are states, columns are actions, rewards are expected rewards."""
        states, actions = self.model.reward.shape
        data = {"observation": torch.arange(states)[:, None], "action": torch.arange(actions)}
        data |= {"reward": self.model.reward, "mask": ~self.model.terminal[:, None]}
        whole = {key: x.expand(states, actions).contiguous() for key, x in data.items()}
        return TensorDict(whole, batch_size=[states]).to(env.device)

    def credit(self, rollout: TensorDict) -> TensorDict:
        target = exact.q_values(self.model, self.policy.state_values().cpu(), self.gamma)
        return rollout.set("return", target.to(rollout.device))

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        q: Tensor = self.policy(batch["observation"][:, 0])
        each = losses.squared_error(q, batch["return"]) * batch["mask"]
        return each.sum(), {"q": q, "delta": (batch["return"] - q).abs().amax()}


class ValueIteration(Sweeps):
    name = "value_iteration"
    config: Config

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        self.config = config
        super().__init__(env, config.gamma)


make = ValueIteration
