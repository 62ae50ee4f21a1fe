"""The next rollout is written while the learner learns from this one: its rows are one version of the weights old.

Rows of version k come from the weights after k rollouts were learned from. The state of an environment is that before
the rollout in progress was begun: a run that is resumed begins it again, from the same problems, with newer weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from tensordict import TensorDict

from rlkit.api import Plays, State, Writes
from rlkit.counters import natural
from rlkit.errors import UserError
from rlkit.text.turns import OneTurn, note

Waits = Callable[[], TensorDict]


@runtime_checkable
class WritesAhead(Writes, Protocol):
    """May write for later, with the weights of now."""

    staleness: int  # versions of the weights that a row may be old when it is learned from; 0: it writes when asked

    def begin(self, prompts: Sequence[str], repeats: int = 1, max_tokens: int = 64, stop: Sequence[str] = ()) -> Waits:
        """Begin what `generate` does; what is returned waits for it."""
        ...


def writes_ahead(policy: Plays) -> bool:
    """Whether the policy writes the next rollout while it learns."""
    return isinstance(policy, WritesAhead) and policy.staleness > 0


def refuse_ahead(policy: Plays, what: str) -> None:
    """Refuse to write ahead what cannot be."""
    if writes_ahead(policy):
        raise UserError(f"policy.staleness=1 writes completions ahead, and not {what}: leave it out")


@dataclass(frozen=True)
class Begun:
    """A rollout that begins: its problems by their index in the train split, and what waits for its completions.

    none: they are written when they are asked for.
    """

    indices: list[int]
    wait: Waits | None = None

    def write(
        self, turns: OneTurn, policy: Writes, prompts: Sequence[str], stop: Sequence[str], repeats: int, limit: int
    ) -> tuple[TensorDict, list[str]]:
        """What `OneTurn.write` gives, of completions that were begun before or that are written now."""
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
    """A rollout of some problems, which is under way at once where the policy writes ahead; ask: for the prompts."""
    if not isinstance(policy, WritesAhead) or not policy.staleness:
        return Begun(indices)
    return Begun(indices, policy.begin(ask(), repeats, limit, stop))


class Next:
    """The rollout that is being written, and the state of its environment before that was begun."""

    def __init__(self) -> None:
        self.on = False
        self.waiting: tuple[tuple[int, int], int, Begun] | None = (
            None  # what was asked for, its version, and what comes
        )
        self.before: State = {}
        self.given = 0  # rollouts that were handed out: the version of the weights that are learned with

    def take(self, asked: tuple[int, int], begin: Callable[[], Begun]) -> tuple[Begun, int]:
        """The rollout that was begun for this, or one that begins now; and the version that writes it."""
        waiting, self.waiting, self.before = self.waiting, None, {}
        if waiting is not None and waiting[0] == asked:
            return waiting[2], waiting[1]
        return begin(), self.given

    def follow(
        self,
        batch: TensorDict,
        version: int,
        asked: tuple[int, int],
        begin: Callable[[], Begun],
        drawn: Callable[[], State],
    ) -> None:
        """Begin the rollout after this one, and mark the rows [..] of this one with the version that wrote them.

        Their age is rollout/staleness. drawn: which problems come next.
        """
        if not self.on:
            return
        self.before = drawn()
        self.waiting = asked, self.given, begin()
        batch["version"] = torch.full(batch.batch_size, version, device=batch["mask"].device)
        note(batch, staleness=[float(self.given - version)] * batch.numel())
        self.given += 1

    def state_dict(self) -> State:
        return {"versions": self.given} if self.on else {}

    def load_state_dict(self, state: State) -> None:
        """What was begun is forgotten."""
        self.waiting, self.before, self.given = None, {}, natural(state["versions"]) if self.on else 0
