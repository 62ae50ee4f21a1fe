"""Policies that are tables: Q[s, a] acted on ε-greedily, and V[s] beside the policy it judges.

A step of plain SGD at rate α on Σ ½δ² over the entries *is* the assignment `table[entry] += α·δ`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from gymnasium.spaces import Discrete
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import seeding
from rlkit.api import Fraction, NonNegative, Positive, Schedule, UserError
from rlkit.exact import Model


@dataclass(frozen=True)
class StepSize:
    """What every method that moves table entries by α·δ needs."""

    lr: Positive = 0.1  # α
    schedule: Schedule = "constant"  # of α: constant, or linear to lr_end · lr at the end of the run
    lr_end: NonNegative = 0.0  # fraction of lr that a linear schedule ends at
    gamma: Fraction = 0.99  # discount per step


class Table(nn.Module):
    """Q[s, a] as an embedding [S, A], acted on ε-greedily. Plain SGD at rate α on ½δ² *is* Q[s, a] += α·δ."""

    memoryless = True
    micro_steps: int | None = None  # small networks take a minibatch whole

    def __init__(
        self, states: int, actions: int, seed: int, initial: float = 0.0, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        start = torch.full((states, actions), initial, dtype=dtype)
        self.q = nn.Embedding.from_pretrained(start, freeze=False)
        self.epsilon, self.generator = 0.0, seeding.generator(seed, "action")

    def forward(self, observation: Tensor) -> Tensor:
        return self.q(observation)

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        q = self(observation)
        best = q.argmax(-1)
        if greedy or self.epsilon == 0.0:
            return best
        draw = torch.rand(2, *best.shape, generator=self.generator).to(best.device)
        return torch.where(draw[0] < self.epsilon, (draw[1] * q.shape[-1]).long(), best)

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        return {}


class PolicyTable(Table):
    """Q[s, a] of the policy that `actions` [S] holds, which is the one that acts."""

    def __init__(self, states: int, actions: int, seed: int, **table: Any) -> None:
        super().__init__(states, actions, seed, **table)
        self.actions: Tensor
        self.register_buffer("actions", torch.zeros(states, dtype=torch.long))

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        return self.actions[observation]


class ValueTable(nn.Module):
    """V[s] in float64, and the fixed policy that it judges: `probabilities` [S, A], drawn from even when greedy."""

    memoryless = True
    micro_steps: int | None = None

    def __init__(self, probabilities: Tensor, seed: int, initial: float = 0.0) -> None:
        super().__init__()
        start = torch.full((len(probabilities), 1), initial, dtype=torch.float64)
        self.v = nn.Embedding.from_pretrained(start, freeze=False)
        self.probabilities: Tensor
        self.register_buffer("probabilities", probabilities.double())
        self.visits: Tensor  # N(s), where a method counts them
        self.register_buffer("visits", torch.zeros(len(probabilities), dtype=torch.long))
        self.generator = seeding.generator(seed, "action")

    @property
    def values(self) -> Tensor:
        """V, [S]."""
        return self.v.weight[:, 0].detach()

    def forward(self, observation: Tensor) -> Tensor:
        return self.v(observation).squeeze(-1)

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        """Invert the cumulative distribution. What is judged is this policy: its most likely action is another one."""
        cumulative = self.probabilities[observation].cumsum(-1)
        draw = torch.rand(observation.shape, generator=self.generator, dtype=torch.float64).to(cumulative.device)
        # Rounding may leave the last sum below 1, so it is scaled to what there is; impossible actions are never drawn.
        return (cumulative > (draw * cumulative[..., -1]).unsqueeze(-1)).long().argmax(-1)

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        return {}


def meetings(entry: Tensor) -> Tensor:
    """How many elements of the batch fall on the same entry of a table, for each element. entry: [N] → [N]."""
    _, where, count = entry.unique(return_inverse=True, return_counts=True)
    return count[where]


def sizes(env: Any, algorithm: str) -> tuple[int, int]:
    """How many states and actions there are; whatever has no finite number of both is refused."""
    space = getattr(env, "observation_space", None)
    if not isinstance(space, Discrete):
        discrete = isinstance(getattr(env, "action_space", None), Discrete)
        given = "text" if space is None else f"a {type(space).__name__}{space.shape}"
        instead = "algo=grpo" if space is None else "algo=dqn" if discrete else "algo=ppo"
        raise UserError(f"{algorithm} keeps a table and needs finitely many states, not {given}; use {instead}")
    if not isinstance(env.action_space, Discrete):
        raise UserError(f"{algorithm} needs discrete actions and this environment has {env.action_space}; use algo=ppo")
    return int(space.n), int(env.action_space.n)


def known_model(env: Any, what: str, instead: str) -> Model:
    """The environment's model; one that has none is refused."""
    if not hasattr(env, "model"):
        there = "gridworld, frozenlake, cliffwalking and taxi have one"
        raise UserError(f"{what} needs the model of the environment and this one has none: {there}; or use {instead}")
    return env.model()
