"""One object under several names of saved state, or in several places of its collections: resume makes it one again."""

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

from torch import Tensor

from rlkit.api import Algorithm, State
from rlkit.attributes import fills, form, put_back, state_of
from rlkit.held import owner


def ready(algo: Algorithm, values: State, keys: Sequence[str]) -> dict[str, Callable[[], None]]:
    """For each of these names of `saved` that has a value, a function that restores it.

    values: where one object stands in several places of them, one object will stand; their collections are changed.
    """
    first: dict[int, str] = {}  # the name whose attribute is filled with a value, by the value's id
    filled: dict[int, object] = {}  # that attribute
    for key in (there := [key for key in keys if key in values]):
        if _is_filled(x := owner(algo, key)[key.rpartition(".")[2]], values[key]) and id(values[key]) not in first:
            first[id(values[key])], filled[id(values[key])] = key, x

    def put(key: str) -> None:
        held, last, value = owner(algo, key), key.rpartition(".")[2], values[key]
        if first.get(id(value), key) != key and form(value) == form(state_of(held[last])):
            held[last] = filled[id(value)]
            return
        if id(value) in first:
            filled[id(value)] = held[last]  # a part that was restored meanwhile may have another
        put_back(held, last, _inside(value, filled))

    return {key: partial(put, key) for key in there}


def _is_filled(x: object, value: object) -> bool:
    """Whether `put_back` fills the attribute itself with a value that may stand elsewhere, too."""
    return fills(x, value) or (type(x) in (list, dict) and type(value) is type(x))


def _inside(value: object, filled: dict[int, object]) -> object:
    """The value, in whose collections each object of `filled` is replaced by the attribute that it fills."""
    if isinstance(value, tuple):
        return tuple(_replaced(item, filled) for item in value)
    if isinstance(value, dict | list):
        for key, item in [*(value.items() if isinstance(value, dict) else enumerate(value))]:
            value[key] = _replaced(item, filled)
    return value


def _replaced(item: object, filled: dict[int, object]) -> object:
    if isinstance(item, tuple):
        return _inside(item, filled)
    if isinstance(item, list | dict) and id(item) not in filled:
        filled[id(item)] = item  # looked through once, wherever it stands
        _inside(item, filled)
    return filled.get(id(item), item)


def copied(x: Any, known: dict[int, Any] | None = None) -> Any:
    """A copy of what `state_of` gave, which later changes of the attribute leave alone; what is one object stays one.

    known: the copies by the ids of what was copied, which lives meanwhile.
    """
    known = {} if known is None else known
    if isinstance(x, tuple):
        return tuple(copied(item, known) for item in x)
    if id(x) not in known:
        known[id(x)] = again = x.detach().clone() if isinstance(x, Tensor) else copy(x)
        if isinstance(x, dict | list | deque):
            for key, item in x.items() if isinstance(x, dict) else enumerate(x):
                again[key] = copied(item, known)
    return known[id(x)]
