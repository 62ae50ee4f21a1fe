"""Writing ahead: the next rollout is written during learning, so its weights are one version old.

Rows of version k come from the weights after k iterations of learning. The saved state of an environment is the one
before the pending rollout began: a resumed run begins it again, from the same problems, with newer weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from tensordict import TensorDict

from rlkit import ranks
from rlkit.api import Plays, State, Writes
from rlkit.counters import natural
from rlkit.errors import UserError
from rlkit.text.turns import OneTurn, note

Waits = Callable[[], TensorDict]


@runtime_checkable
class WritesAhead(Writes, Protocol):
    """May write completions in advance, with the current weights."""

    staleness: int  # largest age of a row when it is learned from, in versions of the weights; 0: no writing ahead

    @property
    def iterations(self) -> int:
        """The number of iterations that began; within one, all rollouts come before the learning."""
        ...

    def begin(self, prompts: Sequence[str], repeats: int = 1, max_tokens: int = 64, stop: Sequence[str] = ()) -> Waits:
        """Begin the work of `generate`; calling the result waits for it."""
        ...


def writes_ahead(policy: Plays) -> bool:
    """Whether the policy writes the next rollout during learning."""
    return isinstance(policy, WritesAhead) and policy.staleness > 0


def refuse_ahead(policy: Plays, what: str) -> None:
    """Refuse to write ahead where it is not supported; `what` names the case."""
    if writes_ahead(policy):
        raise UserError(f"policy.staleness=1 writes completions ahead, and not {what}: leave it out")


@dataclass(frozen=True)
class Begun:
    """A rollout that has begun: indices of its problems in the train split, and a function that waits for completions
    of this rank's part.

    Without that function, the completions are written on demand.
    """

    indices: list[int]
    wait: Waits | None = None

    def write(
        self, turns: OneTurn, policy: Writes, prompts: Sequence[str], stop: Sequence[str], repeats: int, limit: int
    ) -> tuple[TensorDict, list[str]]:
        """As `OneTurn.write`: with the completions that were begun before, or else with new ones."""
        if self.wait is None:
            return turns.write(policy, prompts, stop, repeats, max_tokens=limit)
        batch = self.wait()
        return batch, turns.noted(policy, batch, stop)


def begin_ahead(
    policy: Plays,
    indices: list[int],
    ask: Callable[[], Sequence[str]],
    repeats: int,
    limit: int,
    stop: Sequence[str],
) -> Begun:
    """Begin a rollout of some problems; if the policy writes ahead, it starts writing now. ask: returns the prompts."""
    if not isinstance(policy, WritesAhead) or not policy.staleness:
        return Begun(indices)
    ranks.gather()
    mine = ranks.part_of(len(indices))
    with ranks.playing(len(indices), mine):
        found: list[Waits] = []
        ranks.together(lambda: found.append(policy.begin(ask()[mine], repeats, limit, stop)))
    return Begun(indices, found[0])


class Next:
    """The pending rollout, and the state of its environment before it began."""

    def __init__(self) -> None:
        self.on = False
        # The arguments of the request, its version, and the pending rollout.
        self.waiting: tuple[tuple[int, int], int, Begun] | None = None
        self.before: State = {}
        self.version = 0  # of the learner's weights: the number of iterations that learned
        self.iteration: int | None = None  # of the policy, at the last rollout; None: no rollout since the start

    def take(self, policy: Plays, asked: tuple[int, int], begin: Callable[[], Begun]) -> tuple[Begun, int]:
        """The pending rollout for these arguments, or a new one; and the version of the weights that writes it."""
        if self.on and isinstance(policy, WritesAhead):
            self.version += self.iteration not in (None, policy.iterations)  # several rollouts may precede the learning
            self.iteration = policy.iterations
        waiting, self.waiting, self.before = self.waiting, None, {}
        if waiting is not None and waiting[0] == asked:
            return waiting[2], waiting[1]
        return begin(), self.version

    def follow(
        self,
        batch: TensorDict,
        version: int,
        asked: tuple[int, int],
        begin: Callable[[], Begun],
        drawn: Callable[[], State],
    ) -> None:
        """Begin the rollout after this one, and store in each row [..] its age in versions as rollout/staleness.

        drawn: the state that decides which problems come next.
        """
        if not self.on:
            return
        self.before = drawn()
        self.waiting = asked, self.version, begin()
        batch["version"] = torch.full(batch.batch_size, version, device=batch["mask"].device)
        note(batch, staleness=[float(self.version - version)] * batch.numel())

    def state_dict(self) -> State:
        """The version after the learning from the last rollout."""
        return {"versions": self.version + (self.iteration is not None)} if self.on else {}

    def load_state_dict(self, state: State) -> None:
        """Forget the pending rollout."""
        self.waiting, self.before, self.iteration = None, {}, None
        self.version = natural(state["versions"]) if self.on else 0
