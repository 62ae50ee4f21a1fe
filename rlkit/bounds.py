"""Checks what comes from a file: the types of tensors, and that steps lie in the spaces."""

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor
from torch.optim import Optimizer

from rlkit import spaces
from rlkit.moments import is_scalar, of_library

if TYPE_CHECKING:
    from rlkit.spaces import AnySpace, Array

STEPS = {"action", "mask", "observation"}  # keys of whatever holds steps
PLAYED = ("observation", "next_observation", "reward", "discount")  # finite, or the run stops


def check_types(held: object, part: Any, ours: bool) -> None:  # Any: whatever has a state_dict
    """Refuse tensors of other types than a part of the algorithm has: torch would cast them without a word.

    held: its state from a file; ours: it is a module, or of rlkit or torch. Others may keep other types, but no complex
    numbers where they have none.

    Raises: TypeError.
    """
    if isinstance(part, Optimizer):
        if not of_library(part):
            return
        parameters = [p for group in part.param_groups for p in group["params"]]
        for number, state in held["state"].items() if isinstance(held, dict) else ():
            for parameter in parameters[number : number + 1]:
                _compare(state, {key: parameter for key, x in state.items() if not is_scalar(key, x)}, True)
    else:
        _compare(held, part.state_dict(), ours)


def _compare(held: object, own: object, ours: bool, name: str = "") -> None:
    if isinstance(held, dict) and isinstance(own, dict):
        for key in held.keys() & own.keys():
            _compare(held[key], own[key], ours, f"{name}.{key}" if name else str(key))
    elif isinstance(held, Tensor) and isinstance(own, Tensor) and held.dtype != own.dtype:
        if not ours and (own.is_complex() or not held.is_complex()):
            return
        found, wanted = (str(x.dtype).removeprefix("torch.") for x in (held, own))
        raise TypeError(f"{name} is of {found}, not {wanted}")


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
            check_values(seen, x.numpy())
        elif key == "action" and held.keys() >= STEPS:
            check_actions(chosen, x.numpy(), "a step chose")
        elif key == "blocks":  # frames of which steps hold the numbers
            for block in x:
                check_values(seen, block.numpy())
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


def check_values(space: "AnySpace", x: "Array") -> None:
    if not len(x):  # as of a replay in files; torch gives it no strides, and then no view of its parts
        return
    for _, part, found in spaces.leaf_arrays(space, x):
        if spaces.choices(part) is None:
            continue
        _, count = spaces.range_of(part)
        if (outside := (found < 0) | (found >= count)).any():
            raise ValueError(f"a step saw {found[outside].flat[0]}, which is not in {part}")


def check_actions(space: "AnySpace", action: "Array", who: str) -> None:
    """Raises: ValueError where an action is not in the space, in the form that a policy chooses."""
    counts = spaces.choices(space)
    outside = ~np.isfinite(action) if counts is None else (action < 0) | (action >= np.array(counts))
    if outside.any():
        raise ValueError(f"{who} {action[outside].flat[0]}, which is not in {space}")
