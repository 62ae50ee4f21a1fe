"""Base classes of policies: the generator for draws, statistics of observations, and defaults."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import ranks, seeding
from rlkit.policies.encoders import FORBIDDEN, Allowed
from rlkit.policies.normalize import Normalizer
from rlkit.policies.optimizers import Parametrized
from rlkit.tape import changed

P = TypeVar("P", bound=Parametrized)
Numbers = NDArray[Any]  # observations and actions, whole or real
Function = Callable[[Numbers], Numbers]
SHARING: WeakSet[torch.Generator] = WeakSet()  # generators from which draws are for the rows of all ranks


class PolicyModule(nn.Module):
    """A policy without memory that takes a minibatch whole; a subclass says how it acts, writes or judges."""

    memoryless = True
    micro_steps: int | None = None
    dtype: torch.dtype = torch.float32
    only_evaluated = False  # True: it acts as it began, whatever is learned, so its score says nothing of that
    normalizer: Normalizer | None  # of observations, shared by all networks of the policy
    allowed: Allowed | None  # which actions an observation allows, where it says so
    idle_keys: tuple[tuple[str, str], ...] = ()  # keys `policy.KEY` without effect, each with what leaves it so

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.name, self.generator = type(self).__name__, generator
        self.normalizer = self.allowed = None  # set here: a class attribute would hide a module that a subclass sets

    def uniform(self, shape: Sequence[int], rows: int = 0) -> Tensor:
        """Draws from [0, 1) whose dimension `rows` are the rows that act; so the other two."""
        return self._draw(lambda size: torch.rand(size, generator=self.generator), shape, rows)

    def normal(self, shape: Sequence[int], rows: int = 0) -> Tensor:
        """Draws from N(0, 1)."""
        return self._draw(lambda size: torch.randn(size, generator=self.generator), shape, rows)

    def exponential(self, shape: Sequence[int], rows: int = 0) -> Tensor:
        """Draws E ~ Exp(1)."""
        return self._draw(lambda size: torch.empty(size).exponential_(generator=self.generator), shape, rows)

    def _draw(self, draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int], rows: int) -> Tensor:
        """What is drawn for the rows that this rank plays."""
        if ranks.size() > 1:
            SHARING.add(self.generator)
        return ranks.drawn(draw, shape, rows)

    def idle(self, key: str) -> str:
        """What this policy has, or is, that leaves the configuration key `policy.KEY` without effect; else nothing."""
        return dict(self.idle_keys).get(key, "")

    def refresh(self) -> None:
        """Adopt the statistics observed so far; the loop calls it once per iteration, before anyone acts."""
        if self.normalizer is not None:
            self.normalizer.refresh()

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        """Count the observations that were acted on; the next `refresh` adopts them."""
        if self.normalizer is not None:
            self.normalizer.observe(batch["observation"], batch["mask"])
        return {}

    def reference(self) -> Self:
        """This policy as it is now, which no optimizer moves: of the model that a KL penalty compares with."""
        return frozen_copy(self)


class Exploring(PolicyModule):
    """Acts at random with probability `epsilon` while it learns, and not once it has learned."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(generator)
        self.epsilon = 0.0

    def frozen(self) -> Self:
        """A copy for bootstrap targets that no optimizer moves; it normalizes observations as this policy does."""
        return frozen_copy(self, self.normalizer)


class EpsilonGreedy(Exploring):
    """Q(s, ·) as `forward`, [..., observation] → [..., A]; acts at random with probability `epsilon`."""

    def __init__(self, seed: int) -> None:
        super().__init__(seeding.generator(seed, "action"))

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        q: Tensor = self(observation)
        if self.allowed is not None:
            self.allowed.check(observation, (q.shape[-1],))
        best = q.argmax(-1)
        if greedy or self.epsilon == 0.0:
            return best
        draw = self.uniform((2, *best.shape), 1).to(best.device)
        return torch.where(draw[0] < self.epsilon, any_of(q, draw[1]), best)

    def on_arrays(self, rows: int) -> Function | None:
        """Q(s, ·) as it is now, of arrays with so many rows; None where torch is faster."""
        return None

    def prepared(self, steps: int, rows: int) -> Function | None:
        """What `act` does in each of the next steps, from arrays to arrays; its draws are made at once."""
        q = None if changed(self) or self.allowed is not None else self.on_arrays(rows)
        if q is None:
            return None
        if self.epsilon == 0.0:
            return lambda observation: q(observation).argmax(-1)
        drawn = iter(self.uniform((steps, 2, rows), 2).numpy())

        def act(observation: Numbers) -> Numbers:
            values, (at_random, which) = q(observation), next(drawn)
            action: Numbers = (which * values.shape[-1]).astype(np.int64)
            return np.where(at_random < self.epsilon, action, values.argmax(-1))

        return act

    def value(self, observation: Tensor) -> Tensor:
        """max_a Q(s, a)."""
        q: Tensor = self(observation)
        return q.amax(-1)


def any_of(q: Tensor, draw: Tensor) -> Tensor:
    """A uniformly random allowed action, from a draw in [0, 1). [..., A], [...] → [...]"""
    possible = q > FORBIDDEN / 2
    rank = possible.cumsum(-1)
    which = (draw * rank[..., -1]).long().unsqueeze(-1) + 1
    return ((rank == which) & possible).long().argmax(-1)


@contextmanager
def measured(policy: object) -> Iterator[None]:
    """A policy with dropout off and batch norms that keep their statistics, as torch's eval mode has them.

    Afterwards each part of it is in its own mode again.
    """
    parts = [part for part in policy.modules() if part.training] if isinstance(policy, nn.Module) else []
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True


def frozen_copy(policy: P, *sharing: nn.Module | nn.Parameter | None) -> P:
    """A copy that no optimizer moves: the reference of a KL penalty, or a target network.

    `sharing` are parts that are not copied, such as the normalizer of observations.
    """
    with torch.no_grad():  # else the weights of a copied torch.jit.ScriptModule would depend on those here
        frozen = copy.deepcopy(policy, {id(part): part for part in sharing})
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    return frozen


def reference(policy: P) -> P:
    """The policy as it is now, for a KL penalty; a policy of rlkit copies no more than what will move."""
    return policy.reference() if isinstance(policy, PolicyModule) else frozen_copy(policy)
