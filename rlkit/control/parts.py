"""Which rows of a control problem a rank plays, and which state of a checkpoint is its own."""

from rlkit import ranks
from rlkit.api import Plays, State
from rlkit.errors import UserError
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
        raise UserError(
            f"its episodes in progress are those of {len(held)} ranks, and here are {ranks.size()}: continue it with "
            f"as many (torchrun --nproc-per-node {len(held)}), or start a new run"
        )
    found: State = held[ranks.rank()]
    return found


def adopt_draws(policy: Plays, steps: int) -> None:
    """Draw on from where the rank is that played the most steps: one process would have drawn for as long."""
    if ranks.size() == 1:
        return
    drawing = generators(policy)
    found = ranks.everyones((steps, {name: x.get_state() for name, x in drawing.items()}))
    for name, state in max(found, key=lambda each: each[0])[1].items():
        drawing[name].set_state(state)
