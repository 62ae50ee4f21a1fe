"""Policies that are tables: Q[s, a] acted on ε-greedily, and V[s] beside the policy that it evaluates.

A step of plain SGD at rate α on Σ ½δ² over the entries *is* the assignment `table[entry] += α·δ`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

import torch
from torch import Tensor, nn

from rlkit import seeding, spaces
from rlkit.fields import Fraction, Positive, Search
from rlkit.policies.base import EpsilonGreedy, Function, PolicyModule
from rlkit.policies.encoders import allowed_by
from rlkit.policies.optimizers import LearningRate

if TYPE_CHECKING:
    from rlkit.api import AnySpace


@dataclass(frozen=True)
class StepSize(LearningRate):
    """What every method that moves table entries by α·δ needs."""

    lr: Annotated[Positive, Search(0.01, 1.0, log=True)] = 0.1  # step size α
    gamma: Fraction = 0.99  # discount per step


def embedding(start: Tensor) -> nn.Embedding:
    """A trainable table [S, A] that starts with these entries."""
    rows, columns = start.shape
    return nn.Embedding(rows, columns, _weight=start)


class Table(EpsilonGreedy):
    """Q[s, a] as an embedding [S, A], acted on ε-greedily. Plain SGD at rate α on ½δ² *is* Q[s, a] += α·δ."""

    def __init__(
        self, states: int, actions: int, seed: int, initial: float = 0.0, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(seed)
        self.dtype = dtype
        self.q = embedding(torch.full((states, actions), initial, dtype=dtype))
        self.state_at: tuple[int, int] | None = None  # bytes of the state in an observation that has a mask, too

    def masked(self, space: "AnySpace | None") -> Self:
        """Keep to the actions that an observation allows, where it says so."""
        self.allowed = allowed_by(space)
        if self.allowed is not None and space is not None:
            part = spaces.part_at(space, (spaces.REST,))
            self.state_at = part.start, part.end
        return self

    def state(self, observation: Tensor) -> Tensor:
        """The numbers of the states. [..., (bytes)] → [...]."""
        if self.state_at is None:
            return observation
        start, end = self.state_at
        return observation[..., start:end].view(torch.int64).squeeze(-1)

    def idle(self, key: str) -> str:
        return "a table in place of a network"

    def forward(self, observation: Tensor) -> Tensor:
        q: Tensor = self.q(self.state(observation))
        return q if self.allowed is None else self.allowed.forbid(observation, q, (q.shape[-1],))

    def on_arrays(self, rows: int) -> Function | None:
        if self.q.weight.device.type != "cpu":
            return None
        table = self.q.weight.detach().numpy()
        # A state that the space does not have is found once the rollout is there, and named.
        return lambda observation: table.take(observation, axis=0, mode="clip")

    def state_values(self) -> Tensor:
        """V(s) = max_a Q(s, a), without gradient. [S]"""
        return self.q.weight.detach().amax(-1)

    def best(self) -> Tensor:
        """True at the greedy actions of each state, ties within rounding included. [S, A]"""
        q = self.q.weight.detach()
        rounding = 64 * torch.finfo(q.dtype).eps * max(1.0, float(q.abs().max()))
        return q >= self.state_values().unsqueeze(-1) - rounding


class PolicyTable(Table):
    """Q[s, a] of the policy that `actions` [S] holds; that policy acts."""

    actions: Tensor

    def __init__(
        self, states: int, actions: int, seed: int, initial: float = 0.0, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(states, actions, seed, initial, dtype)
        self.register_buffer("actions", torch.zeros(states, dtype=torch.long))

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        return self.actions[observation]

    def on_arrays(self, rows: int) -> Function | None:
        return None  # it acts by `actions`

    def state_values(self) -> Tensor:
        """Q(s, π(s)), without gradient. [S]"""
        return self.q.weight.detach().gather(-1, self.actions.unsqueeze(-1)).squeeze(-1)

    def best(self) -> Tensor:
        return nn.functional.one_hot(self.actions, self.q.weight.shape[-1]).bool()


class ValueTable(PolicyModule):
    """V[s] in float64, and the fixed policy that it evaluates: `probabilities` [S, A], drawn from even when greedy."""

    dtype = torch.float64
    only_evaluated = True
    probabilities: Tensor
    visits: Tensor  # N(s), where a method counts them

    def __init__(self, probabilities: Tensor, seed: int, initial: float = 0.0) -> None:
        super().__init__(seeding.generator(seed, "action"))
        self.v = embedding(torch.full((len(probabilities), 1), initial, dtype=torch.float64))
        self.register_buffer("probabilities", probabilities.double())
        self.register_buffer("visits", torch.zeros(len(probabilities), dtype=torch.long))

    @property
    def values(self) -> Tensor:
        """V, [S]."""
        return self.v.weight[:, 0].detach()

    def idle(self, key: str) -> str:
        return "a table in place of a network"

    def forward(self, observation: Tensor) -> Tensor:
        v: Tensor = self.v(observation)
        return v.squeeze(-1)

    def value(self, observation: Tensor) -> Tensor:
        return self.forward(observation)

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        """Invert the cumulative distribution. This policy is evaluated: its most likely action is another policy."""
        cumulative = self.probabilities[observation].cumsum(-1)
        draw = torch.rand(observation.shape, generator=self.generator, dtype=torch.float64).to(cumulative.device)
        # Rounding may leave the last sum below 1, so the draw is scaled to it; impossible actions are never drawn.
        return (cumulative > (draw * cumulative[..., -1]).unsqueeze(-1)).long().argmax(-1)


def meetings(entry: Tensor) -> Tensor:
    """How many elements of the batch fall on the same entry of a table, for each element. entry: [N] → [N]."""
    _, where, count = torch.unique(entry, return_inverse=True, return_counts=True)
    shared: Tensor = count[where]
    return shared
