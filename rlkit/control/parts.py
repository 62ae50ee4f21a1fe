"""Which rows of a control problem a rank plays, and which state of a checkpoint is its own."""

from collections.abc import Callable

import torch
from tensordict import TensorDict

from rlkit import buffers, ranks
from rlkit.api import Plays, State
from rlkit.errors import UserError
from rlkit.policies.base import SHARING
from rlkit.seeding import generators


def part_of(rows: int, agents: int) -> slice:
    """The rows that this rank plays; agents of one copy stay together."""
    if rows % (agents * ranks.size()):
        raise UserError(
            f"env.rows={rows // agents} cannot be divided among {ranks.size()} ranks: give a multiple of {ranks.size()}"
        )
    return ranks.part_of(rows)


def state_of(state: State) -> State:
    """What a checkpoint holds for this rank.

    Raises: UserError where it is of another number of ranks.
    """
    held = state.get("ranks", [state])
    if len(held) != ranks.size():
        many, command = f"{len(held)} ranks", f"torchrun --nproc-per-node {len(held)} -m rlkit.run"
        if len(held) == 1:
            many, command = "one process", "python -m rlkit.run"
        raise UserError(
            f"its episodes in progress are those of {many}, and here are {ranks.size()}: continue it with as many "
            f"({command} resume=FOLDER), or start a new run"
        )
    found: State = held[ranks.rank()]
    return found


def of_all(policy: Plays, rows: int, play: Callable[[slice], TensorDict]) -> TensorDict:
    """A rollout of so many rows, of which each rank plays its part.

    Raises: UserError for a policy that draws for its own rows alone: all ranks would draw the same for theirs.
    """
    drawing = generators(policy) if ranks.size() > 1 else {}
    before = {name: x.get_state() for name, x in drawing.items()}
    rollout = buffers.of_all(rows, play)
    used = [name for name, x in drawing.items() if x not in SHARING and not torch.equal(before[name], x.get_state())]
    if used:
        kind = type(policy).__name__
        raise UserError(
            f"{kind}.act draws from {kind}.{used[0]}, and so alike on all ranks: let it inherit policies.PolicyModule, "
            "and draw by self.uniform, self.normal or self.exponential"
        )
    return rollout


def adopt_draws(policy: Plays, steps: int) -> None:
    """Draw on from where the rank is that played the most steps: one process would have drawn for as long."""
    if ranks.size() == 1:
        return
    drawing = generators(policy)
    found = ranks.everyones((steps, {name: x.get_state() for name, x in drawing.items()}))
    for name, state in max(found, key=lambda each: each[0])[1].items():
        drawing[name].set_state(state)
