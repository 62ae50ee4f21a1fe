"""Spaces as a policy sees them: supported Gymnasium spaces, and conversion of observations and actions to arrays.

An observation is one row of numbers: float32 for a Box (uint8 for bytes or bits), int64 for choices, uint8 for bits. An
observation with several parts is a row of bytes in which each part keeps its own type, so that it is stored as one
tensor of minimal size; `parts` splits it. An action is a number, a row of integers (one for each choice), or a row of
real numbers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from numpy.typing import NDArray
from torch import Tensor

from rlkit.errors import UserError

if TYPE_CHECKING:
    from gymnasium.spaces import Space

    AnySpace = Space[Any]  # of any elements

Array = NDArray[Any]
MASK, REST = "action_mask", "observation"  # keys of a Dict: the allowed actions, and the observation beside them
FLAT = (Box, Discrete, MultiDiscrete, MultiBinary)
OBSERVED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of them"
CHOSEN = "Discrete, MultiDiscrete, MultiBinary, Tuple of them, and Box"
TORCH = {np.dtype(np.float32): torch.float32, np.dtype(np.int64): torch.int64, np.dtype(np.uint8): torch.uint8}


@dataclass(frozen=True)
class Part:
    """The position of one space of a composite space in the row."""

    path: tuple[str, ...]  # keys of Dicts and indices of Tuples that lead to it
    space: "AnySpace"
    start: int  # offset in bytes
    end: int


def leaves(space: "AnySpace", path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "AnySpace"]]:
    """The elementary spaces in a space, in order."""
    if isinstance(space, Dict | Tuple):
        items = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for key, inner in items:
            if isinstance(space, Dict) and not isinstance(key, str):
                raise UserError(f"{space} has the key {key!r}: write the keys of a Dict as texts")
            yield from leaves(inner, (*path, str(key)))
    else:
        yield path, space


def masks_actions(space: "AnySpace | None") -> bool:
    """Whether observations include a mask of allowed actions."""
    return isinstance(space, Dict) and MASK in space.spaces


def part_at(space: "AnySpace", path: tuple[str, ...]) -> Part:
    """The part of a composite space at a path."""
    return next(part for part in layout(Same(space))[0] if part.path == path)


def beside_mask(space: "AnySpace") -> "AnySpace":
    """The observation space without the mask, if the rest is one space under its own key."""
    if isinstance(space, Dict) and {*space.spaces} == {MASK, REST}:
        return space.spaces[REST]
    return space


def is_composite(space: "AnySpace") -> bool:
    return isinstance(space, Dict | Tuple)


def dtype(space: "AnySpace") -> np.dtype[Any]:
    """The type in which a part is stored."""
    if isinstance(space, Box):
        return np.dtype(np.uint8 if space.dtype in (np.uint8, np.bool_) else np.float32)
    return np.dtype(np.uint8 if isinstance(space, MultiBinary) else np.int64)


def width(space: "AnySpace") -> int:
    """The number of numbers in a part."""
    return math.prod(space.shape or ())


@lru_cache(maxsize=64)
def layout(key: "Same") -> tuple[tuple[Part, ...], int]:
    """The parts of a composite space, and the bytes of a row; wide types come first, for alignment."""
    found, end = {}, 0
    order = sorted(leaves(key.space), key=lambda leaf: -dtype(leaf[1]).itemsize)
    for path, space in order:
        start, end = end, end + width(space) * dtype(space).itemsize
        found[path] = Part(path, space, start, end)
    return tuple(found[path] for path, _ in leaves(key.space)), -(-end // 8) * 8


class Same:
    """A space, compared by identity: spaces have no hash."""

    def __init__(self, space: "AnySpace") -> None:
        self.space = space

    def __hash__(self) -> int:
        return id(self.space)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.space is self.space


def row(space: "AnySpace") -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of one observation for a policy."""
    if is_composite(space):
        return (layout(Same(space))[1],), np.dtype(np.uint8)
    return () if isinstance(space, Discrete) else (width(space),), dtype(space)


def observed(space: "AnySpace", observation: Any) -> Array:  # Any: arrays, nested as the space is
    """A batch of observations in the form for a policy. → [n], [n, d]

    Choices are counted from 0, wherever they start in the space.
    """
    if not is_composite(space):
        return flat(space, observation)
    parts, size = layout(Same(space))
    found = [flat(part.space, inside(observation, space, part.path)) for part in parts]
    rows = np.zeros((len(found[0]), size), dtype=np.uint8)
    for part, x in zip(parts, found, strict=True):
        rows[:, part.start : part.end] = np.ascontiguousarray(x.reshape(len(x), width(part.space))).view(np.uint8)
    return rows


def one(space: "AnySpace", observation: Any) -> Array:  # Any: an array, or nested as the space is
    """A single observation in the form for a policy."""
    if not is_composite(space):
        alone: Array = flat(space, np.asarray(observation)[None])[0]
        return alone
    found = np.zeros(layout(Same(space))[1], dtype=np.uint8)
    for part in layout(Same(space))[0]:
        x = flat(part.space, np.asarray(inside(observation, space, part.path))[None])
        found[part.start : part.end] = np.ascontiguousarray(x).view(np.uint8).reshape(-1)
    return found


def inside(observation: Any, space: "AnySpace", path: tuple[str, ...]) -> Any:
    """The part of a nested observation at a path."""
    for key in path:
        if isinstance(space, Dict):
            observation, space = observation[key], space.spaces[key]
        else:
            assert isinstance(space, Tuple)
            observation, space = observation[int(key)], space.spaces[int(key)]
    return observation


def flat(space: "AnySpace", observation: Array) -> Array:
    """A batch of observations of an elementary space, in the form for a policy."""
    if isinstance(space, Discrete):
        numbers: Array = np.asarray(observation, dtype=np.int64) - space.start
        return numbers
    x = np.asarray(observation).reshape(len(observation), width(space))
    if isinstance(space, MultiDiscrete):
        return x.astype(np.int64) - space.start.reshape(-1)
    return x.astype(dtype(space), copy=False)


def parts(space: "AnySpace", x: Tensor) -> list[Tensor]:
    """The parts of observations [..., bytes] of a composite space, in order: [...] of a Discrete, else [..., d]."""
    found = []
    for part in layout(Same(space))[0]:
        inner = x[..., part.start : part.end].view(TORCH[dtype(part.space)])
        found.append(inner.squeeze(-1) if isinstance(part.space, Discrete) else inner)
    return found


def leaf_arrays(space: "AnySpace", observation: Array) -> Iterator[tuple[tuple[str, ...], "AnySpace", Array]]:
    """Each part of observations in the form for a policy, with its path and its space."""
    if not is_composite(space):
        yield (), space, observation
        return
    found = parts(space, torch.from_numpy(np.ascontiguousarray(observation)))
    for (path, part), x in zip(leaves(space), found, strict=True):
        yield path, part, x.numpy()


def range_of(space: "AnySpace") -> tuple[Array, Array]:
    """The lowest value and the number of values of each choice in a space: [] for a Discrete, else [k]."""
    counts = np.array(choices(space))
    if isinstance(space, Discrete):
        return np.array(space.start), counts[0]
    return (space.start.reshape(-1) if isinstance(space, MultiDiscrete) else np.zeros_like(counts)), counts


def choices(space: "AnySpace") -> tuple[int, ...] | None:
    """The number of values of each choice of an action: (n,) for Discrete(n); None where actions are not choices."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    if isinstance(space, MultiDiscrete):
        return tuple(int(n) for n in space.nvec.reshape(-1))
    if isinstance(space, MultiBinary):
        return (2,) * width(space)
    if isinstance(space, Tuple):
        inner = [choices(part) for part in space.spaces]
        if all(part is not None for part in inner):
            return tuple(n for part in inner for n in part or ())
    return None


def executed(space: "AnySpace", action: Array) -> Any:  # as the space nests them
    """The actions for the environment's `step`, which may write into them: a policy's, clipped to a Box.

    In a Box of whole numbers or bits the nearest counts: cut off, the highest is hardly played, and every 0.1 is True.
    """
    if isinstance(space, Box):
        clipped: Array = np.clip(action.reshape(len(action), *space.shape), space.low, space.high)
        return (np.rint(clipped) if np.dtype(space.dtype).kind in "iub" else clipped).astype(space.dtype)
    if isinstance(space, Discrete):
        return (action + space.start if space.start else action).astype(space.dtype)
    if isinstance(space, MultiDiscrete):
        chosen: Array = (action.reshape(len(action), *space.shape) + space.start).astype(space.dtype)
        return chosen
    if isinstance(space, MultiBinary):
        return action.reshape(len(action), *space.shape).astype(space.dtype)
    assert isinstance(space, Tuple)
    found, start = [], 0
    for part in space.spaces:
        end = start + len(choices(part) or ())
        own = action[:, start] if isinstance(part, Discrete) else action[:, start:end]
        found.append(executed(part, own))
        start = end
    return tuple(found)


def permitted(seen: "AnySpace", space: "AnySpace", observation: Array, action: Array) -> Array:
    """Replace each forbidden choice in the actions by the first choice that its observation allows.

    Arguments:
        seen: the observation space, which includes the mask.
        space: the action space.
        observation, action: in the form for a policy, [n, bytes] and [n] or [n, k].
    """
    part = part_at(seen, (MASK,))
    allowed = np.ascontiguousarray(observation[:, part.start : part.end]).view(dtype(part.space)) > 0
    return lawful(space, allowed, action)


def lawful(space: "AnySpace", allowed: Array, action: Array) -> Array:
    """As `permitted`, with a mask [n, Σ n_i] of bool."""
    found, rows = action.reshape(len(action), -1).copy(), np.arange(len(action))
    for i, mask in enumerate(np.split(allowed, np.cumsum(choices(space) or ())[:-1], -1)):
        found[:, i] = np.where(mask[rows, found[:, i]], found[:, i], mask.argmax(-1))
    return found.reshape(action.shape)


def action_shape(space: "AnySpace") -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of one action as a policy chooses it."""
    if isinstance(space, Box):
        return (width(space),), np.dtype(np.float32)
    return () if isinstance(space, Discrete) else (len(choices(space) or ()),), np.dtype(np.int64)


def check_spaces(observation: "AnySpace", action: "AnySpace") -> None:
    """Raises: UserError for spaces that no policy supports."""
    for name, space, allowed in (("observation", observation, OBSERVED), ("action", action, CHOSEN)):
        for path, part in leaves(space):
            where = f"{name} space" + (f" at {'.'.join(path)}" if path else "")
            if isinstance(part, Text):
                reason = "which no network for control reads or writes"
                raise UserError(f"{where} is Text, {reason}: encode it as numbers, or use env=game")
            if not isinstance(part, FLAT):
                raise UserError(f"{where} {part} is not supported; allowed are {allowed}: use another env")
            if 0 in (part.shape or ()) or (isinstance(part, MultiBinary) and not width(part)):
                raise UserError(f"{where} {part} is empty: give it a component at least, or use a Discrete(1)")
        if not [*leaves(space)]:
            raise UserError(f"{name} space {space} is empty: give it a component at least, or use a Discrete(1)")
    check_action(action)
    if isinstance(observation, Dict) and MASK in observation.spaces:
        if (counts := choices(action)) is None:
            raise UserError(
                f"observation space has a part {MASK}, which says what choices are allowed, and {action} has none: "
                "give the part another name"
            )
        if len(observation.spaces) == 1:
            raise UserError(f"observation space {observation} has nothing but {MASK}: give what the policy sees, too")
        entries, values = width(observation.spaces[MASK]), sum(counts)
        if entries != values:
            raise UserError(
                f"observation space at {MASK} has {entries} entries, and {action} has {values} values to choose from: "
                "give one for each"
            )


def check_action(space: "AnySpace") -> None:
    """Raises: UserError for actions that are neither choices nor real numbers."""
    if not isinstance(space, Box) and choices(space) is None:
        raise UserError(f"action space {space} is not supported; allowed are {CHOSEN}: use another env")
