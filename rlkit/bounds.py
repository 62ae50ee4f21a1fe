"""Checks steps from a file: their actions and observations must lie in the spaces."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from rlkit import spaces

if TYPE_CHECKING:
    from rlkit.spaces import AnySpace, Array

STEPS = {"action", "mask", "observation"}  # keys of whatever holds steps
PLAYED = ("observation", "next_observation", "reward", "discount")  # finite, or the run stops


def check_real(held: object, own: Callable[[], object]) -> None:
    """Raises: TypeError for complex numbers in a state whose owner has none: torch would drop their imaginary part."""
    if is_complex(held) and not is_complex(own()):
        raise TypeError("complex numbers")


def is_complex(state: object) -> bool:
    """Whether a state holds complex numbers, at any depth."""
    if isinstance(state, dict | list | tuple):
        return any(map(is_complex, state.values() if isinstance(state, dict) else state))
    return isinstance(state, Tensor) and state.is_complex()


def check_steps(held: object, seen: "AnySpace", chosen: "AnySpace") -> None:
    """Search a state for steps, at any depth, and check their observations and actions.

    Raises: ValueError for a value outside of its space.
    """
    if isinstance(held, list | tuple):
        for item in held:
            check_steps(item, seen, chosen)
    if not isinstance(held, dict):
        return
    if held.keys() >= STEPS:
        check_numbers(held)
    for key, x in held.items():
        if key in ("observation", "next_observation") and held.keys() >= STEPS and x.dtype == numbers(seen):
            check_values(seen, x.numpy(), "a step saw")
        elif key == "action" and held.keys() >= STEPS:
            check_actions(chosen, x.numpy(), "a step chose")
        elif key == "blocks":  # frames of which steps hold the numbers
            for block in x:
                check_values(seen, block.numpy(), "a step saw")
        else:
            check_steps(x, seen, chosen)


def check_numbers(steps: dict[str, Tensor]) -> None:
    for key, x in ((key, steps[key]) for key in PLAYED if key in steps):
        bad = ~x.isfinite() | ((x < 0) | (x > 1)) if key == "discount" else ~x.isfinite()
        if bool(bad.any()):
            raise ValueError(f"{key} of a step is {x[bad].flatten()[0].item()}")


def numbers(space: "AnySpace") -> object:
    """The type of observations as they are kept; of other types are the numbers of frames."""
    return spaces.TORCH[spaces.row(space)[1]]


def check_values(space: "AnySpace", x: "Array", who: str) -> None:
    for _, part, found in spaces.leaf_arrays(space, x):
        if spaces.choices(part) is None:
            continue
        _, count = spaces.range_of(part)
        if (outside := (found < 0) | (found >= count)).any():
            raise ValueError(f"{who} {found[outside].flat[0]}, which is not in {part}")


def check_actions(space: "AnySpace", action: "Array", who: str) -> None:
    """Raises: ValueError where an action is not in the space, in the form that a policy chooses."""
    counts = spaces.choices(space)
    outside = ~np.isfinite(action) if counts is None else (action < 0) | (action >= np.array(counts))
    if outside.any():
        raise ValueError(f"{who} {action[outside].flat[0]}, which is not in {space}")
