"""Where episodes end: whether a step ended them, and what each earned until then."""

from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

import numpy as np

from rlkit.errors import UserError
from rlkit.spaces import Array


def either(terminated: object, truncated: object, called: object) -> Array:
    """Which copies' episodes end in this step. → bool [n].

    Raises: UserError where a vector environment gives other flags: numbers would choose rows in place of masking them.
    """
    if not (is_mask(terminated) and is_mask(truncated)):
        both = (terminated, truncated)
        kinds = " and ".join(str(x.dtype) if isinstance(x, np.ndarray) else f"one {type(x).__name__}" for x in both)
        raise UserError(f"{called}: step gave terminated and truncated of {kinds}: return arrays of bool, one a copy")
    done: Array = terminated | truncated
    return done


def refuse_columns(reward: Array, terminated: Array, truncated: Array, called: object) -> NoReturn:
    """Name what has no shape [n]: of rewards [n, 1] each copy would be paid what all have earned."""
    shapes = ", ".join(f"{np.shape(x)}" for x in (reward, terminated, truncated))
    raise UserError(
        f"{called}: step gave reward, terminated and truncated of shapes {shapes}: return one value a copy in each"
    )


def check_others(before: Array, after: Array, done: Array, called: object) -> None:
    """Raises: UserError where the reset of copies that are done also moved others, whose episodes go on.

    before, after: what all copies see [n, ...].
    """
    if before[~done].tobytes() != after[~done].tobytes():
        raise UserError(
            f"{called}: a reset of some copies changed others, too: start those where options['reset_mask'] is True, "
            "and leave the others as they are"
        )


def check_resets(done: Array, acting: Array, called: object) -> None:
    """Raises: UserError where copies that should only have been reset are done again: nothing resets them. [n] both."""
    if (done & ~acting).any():
        raise UserError(
            f"{called}: a step after the end of an episode ended it again, so no copy is reset as the mode NEXT_STEP "
            "says: set metadata['autoreset_mode'] to what it does"
        )


def last_seen(info: Mapping[str, Any], called: object) -> Any:
    """What each copy saw at the end of an episode, where the observation is already that of the next one.

    Raises: UserError where a vector environment of mode SAME_STEP left it out.
    """
    if "final_obs" not in info:
        raise UserError(
            f"{called}: a step of mode SAME_STEP that ended an episode gave no info['final_obs']: put there what each "
            "copy saw last"
        )
    return info["final_obs"]


def is_mask(flags: object) -> TypeGuard[Array]:
    return isinstance(flags, np.ndarray) and flags.dtype == bool


def ended(done: Array, sums: Array) -> tuple[Array, Array]:
    """Of sums that run on through the ends of episodes: each episode's own where it ended, and of what goes on [n].

    done, sums: [T, n].
    """
    found = np.zeros(sums.shape, sums.dtype)
    base = np.zeros(sums.shape[1:], sums.dtype)
    for t in np.flatnonzero(done.any(1)):
        rows = done[t]
        found[t, rows] = sums[t, rows] - base[rows]
        base[rows] = sums[t, rows]
    return found, sums[-1] - base
