"""Attributes beside an object's state_dict: whether one is state, saving and restoring."""

import math
import random
from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from io import IOBase
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

VIEWS = (KeysView, ValuesView, ItemsView)
COLLECTIONS = (dict, list, tuple, AbstractSet, deque, *VIEWS)
RANDOM = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
STATE = (Tensor, nn.Module, np.ndarray, Iterator, *RANDOM)

PLAIN = (bool, int, float, complex, str, bytes, type(None))
NUMBERS = {bool, int, float}
NUMBER = (bool, int, float, np.number, np.bool_)
FLAT = frozenset(PLAIN) - {bytes}  # types whose objects are looked at together
NODES = 10**6  # most objects that are examined; those beyond count as unchanged, and not as state
TORCH = frozenset(vars(nn.Module()))  # attributes of every module: parameters, children, hooks


class Derived:
    """Base class of objects that are recomputed from saved state when needed, such as weights in another precision."""


def is_part(x: object) -> bool:
    """Whether an attribute has a state_dict of its own, by torch's convention; a user's objects may follow it, too."""
    return hasattr(x, "load_state_dict")


def held_by(x: object) -> dict[str, Any]:
    """Attributes by name; for a module including its children, parameters and buffers."""
    return {key: held for found in places(x) for key, held in found.items()}


def at(x: object, path: Iterable[str]) -> object:
    """The attribute of an attribute that a path names; None where there is no such one."""
    for name in path:
        x = held_by(x).get(name)
    return x


def places(x: object) -> list[dict[str, Any]]:
    """The dictionaries that hold an object's attributes: a module has several of them, and a class none to be set."""
    own = [vars(x)] if hasattr(x, "__dict__") and not isinstance(x, type) else []
    return [*own, x._modules, x._parameters, x._buffers] if isinstance(x, nn.Module) else own


def is_state(x: object, known: AbstractSet[int] = frozenset()) -> bool:
    """Whether a run would lose state without this object, judging by its type; objects in `known` (ids) are saved.

    State is a tensor, an array, an object with a state_dict, a random generator, an iterator, or a collection that
    contains one. A class, an open file, and a module without parameters and buffers (nn.MSELoss) are not state.
    """
    seen: dict[int, object] = {}  # the collections themselves, too: the id of one that is gone is given to another
    waiting: deque[Any] = deque([(x,)])
    while waiting and len(seen) < NODES:
        item = waiting.popleft()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        inner = item.values() if isinstance(item, dict) else item
        parts = [part for part in inner if type(part) not in FLAT and id(part) not in known]
        collections = [part for part in parts if isinstance(part, COLLECTIONS)]
        if len(collections) < len(parts) and any(_is_state(x) for x in parts if not isinstance(x, COLLECTIONS)):
            return True
        waiting += collections
    return False


def _is_state(x: object) -> bool:
    """Whether an object that is not a collection is state."""
    if isinstance(x, type | Derived):
        return False
    if isinstance(x, nn.Module):
        return bool(x.state_dict())
    return (isinstance(x, STATE) and not isinstance(x, IOBase)) or hasattr(x, "state_dict")


def unsaved_in(x: object, depth: int = 20) -> str:
    """The type of the first thing in a collection that a checkpoint cannot hold; empty where all can be held."""
    inner = x.values() if isinstance(x, dict) else x if isinstance(x, COLLECTIONS) else ()
    found = next((item for item in inner if not _is_data(item)), None)
    nested = depth > 0 and type(found) in (list, tuple, dict)
    return unsaved_in(found, depth - 1) if nested else "" if found is None else type(found).__name__


def named_kind(x: object) -> str:
    """What an object is that a checkpoint cannot hold: `a list with OrderedDict inside`."""
    inner = unsaved_in(x)
    return f"a {type(x).__name__}{f' with {inner} inside' if inner else ''}"


def can_be_saved(x: object) -> bool:
    """Whether a checkpoint can hold it: it has load_state_dict, or is a generator, tensors or plain values."""
    if isinstance(x, RANDOM) or hasattr(x, "load_state_dict"):
        return True
    if isinstance(x, AbstractSet | deque):
        return all(map(_is_data, x))
    return _is_data(dict(x) if isinstance(x, dict) else x)


def _is_data(x: object, looked: dict[int, bool] | None = None, depth: int = 20) -> bool:
    """Whether a checkpoint holds it unchanged; `looked`: results for collections that were examined."""
    looked = {} if looked is None else looked
    if isinstance(x, list | tuple | dict) and type(x) in (list, tuple, dict):
        if id(x) not in looked:
            looked[id(x)] = False  # while its items are looked at: what contains itself has no end
            items = (item for pair in x.items() for item in pair) if isinstance(x, dict) else x
            looked[id(x)] = depth > 0 and all(_is_data(item, looked, depth - 1) for item in items)
        return looked[id(x)]
    if isinstance(x, np.ndarray | np.generic):
        return x.dtype.kind in "biufc" and not isinstance(x, np.ma.MaskedArray)  # a file would lose the mask
    return isinstance(x, Tensor) or type(x) in (bool, int, float, str, type(None))


def state_of(x: Any) -> Any:
    """The saved form of an attribute, where `can_be_saved`; `put_back` restores it."""
    if isinstance(x, torch.Generator):
        return x.get_state()
    if isinstance(x, np.random.Generator):
        return x.bit_generator.state
    if isinstance(x, np.random.RandomState):
        return x.get_state(legacy=False)
    if isinstance(x, random.Random):
        return x.getstate()
    if isinstance(x, AbstractSet):
        return sorted(x, key=repr)
    if isinstance(x, deque):
        return list(x)
    return dict(x) if isinstance(x, dict) and type(x) is not dict else x


def form(x: object) -> str:
    """The part of a value that must stay the same so that it can be restored: its type, and of arrays the shape.

    A number may become a NumPy scalar or a tensor of one number, for example a running average.
    """
    if is_number(x):
        return "a number"
    if isinstance(x, Tensor | np.ndarray):
        kind = "a tensor" if isinstance(x, Tensor) else "an array"
        return f"{kind} of {str(x.dtype).removeprefix('torch.')} and shape {tuple(x.shape)}"
    if isinstance(x, deque) and x.maxlen is not None:
        return f"a deque of at most {x.maxlen}"
    return "None" if x is None else f"a {type(x).__name__}"


def order(x: Tensor | NDArray[Any]) -> list[int]:
    """The dimensions from the slowest in memory to the fastest; empty where that is their own order.

    `torch.linalg.inv` and `eigh` return columns after columns, and kernels round by that order. Where the memory has
    gaps, or elements share it, the order is empty, too: a checkpoint holds such numbers row after row.
    """
    if isinstance(x, Tensor) and x.layout is not torch.strided:
        return []
    strides = x.stride() if isinstance(x, Tensor) else [step // x.itemsize for step in x.strides]
    single = [d for d, size in enumerate(x.shape) if size == 1]
    several = sorted((d for d, size in enumerate(x.shape) if size != 1), key=lambda d: -strides[d])
    dense = all(strides[d] == math.prod(x.shape[inner] for inner in several[i:]) for i, d in enumerate(several, 1))
    return [*single, *several] if dense and several != sorted(several) else []


def laid(x: Tensor, dimensions: list[int]) -> Tensor:
    """The same numbers, with the dimensions from the slowest in memory to the fastest as given."""
    return x.permute(dimensions).contiguous().permute([dimensions.index(d) for d in range(len(dimensions))])


def fills(x: object, value: object) -> bool:
    """Whether `put_back` copies a value into the memory of this attribute, which other objects may refer to."""
    if isinstance(x, Tensor) and isinstance(value, Tensor):  # a part of another cannot take another order of memory
        movable = x._base is None or x.requires_grad or order(x) == order(value)
        return x.dtype == value.dtype and x.shape == value.shape and movable
    if isinstance(x, np.ndarray) and isinstance(value, np.ndarray):
        return bool(x.dtype == value.dtype and x.shape == value.shape)
    return False


def put_in_order(module: nn.Module, state: Mapping[str, object]) -> None:
    """Let the tensors of a module lie in memory as those of its state, from which torch copies only the numbers."""
    for key, x in (*module.named_parameters(), *module.named_buffers()):
        value = state.get(key)
        if isinstance(value, Tensor) and order(x) != (dimensions := order(value)) and x._base is None:
            # The object stays: an optimizer refers to it.
            x.data = laid(x.data, dimensions) if dimensions else x.data.contiguous()


def is_number(x: object) -> bool:
    if isinstance(x, Tensor):
        return not x.dim()
    return isinstance(x, NUMBER) or (isinstance(x, np.ndarray) and not x.ndim)


def check_numbers(found: Iterable[object]) -> None:
    """Raises: TypeError where one of them is not a number."""
    for x in found:
        if not is_number(x):
            raise TypeError(f"{form(x)} stands in place of a number")


def put_back(owner: dict[str, Any], key: str, value: Any) -> None:
    """Restore an attribute, in place if possible: other objects, such as an optimizer, may refer to it.

    Raises: TypeError or ValueError where the state does not belong to this attribute.
    """
    x = owner[key]
    if form(value) != (wanted := form(state_of(x))):
        raise TypeError(f"{form(value)} stands in place of {wanted}")
    if fills(x, value) and isinstance(x, Tensor):
        if order(x) != order(value) and not x.requires_grad:
            x.data = value.to(x.device)  # the object stays: others may refer to it
        else:
            x.data.copy_(value)  # of a parameter its values
    elif fills(x, value):
        np.copyto(x, value)
    elif isinstance(x, torch.Generator):
        x.set_state(value)
    elif isinstance(x, np.random.Generator):
        x.bit_generator.state = value
    elif isinstance(x, np.random.RandomState):
        if not 0 <= value["state"]["pos"] <= len(value["state"]["key"]):  # NumPy would read beyond the words
            raise ValueError("a position out of range")
        x.set_state(value)
    elif isinstance(x, random.Random):
        x.setstate(value)
    elif isinstance(x, dict | list | set | deque):
        x.clear()
        x.extend(value) if isinstance(x, list | deque) else x.update(value)
    elif isinstance(x, frozenset):
        owner[key] = frozenset(value)
    else:  # plain values, and a number that has become one of another kind
        owner[key] = value.to(x.device) if isinstance(x, Tensor) and isinstance(value, Tensor) else value


def shared_by(named: Mapping[str, object]) -> str:
    """The first two names of one value that `put_back` fills in place, such as a tensor or a list; empty without."""
    first: dict[int, str] = {}
    for name, x in named.items():
        if isinstance(x, Tensor | np.ndarray | dict | list | set | deque) and first.setdefault(id(x), name) != name:
            return f"'{first[id(x)]}' and '{name}'"
    return ""


def check_alike(found: object, wanted: object, shapes: bool) -> None:
    """Refuse a state whose values have other types, and with `shapes` also arrays of other shapes.

    Arguments:
        found: the content of a file.
        wanted: the same part of a new object; where it is empty or None, anything is accepted.

    Raises: TypeError or ValueError.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in wanted.keys() & found.keys():
            check_alike(found[key], wanted[key], shapes)
    elif isinstance(wanted, list) and isinstance(found, list):
        for item in found if wanted else ():
            check_alike(item, wanted[0], shapes)
    elif isinstance(wanted, Tensor | np.ndarray) and type(found) is type(wanted):
        if shapes and found.shape != wanted.shape:
            raise ValueError(f"the shape is {tuple(found.shape)}, not {tuple(wanted.shape)}")
    elif not (wanted is None or type(found) is type(wanted) or {type(found), type(wanted)} <= NUMBERS):
        raise TypeError(f"a {type(found).__name__} stands in place of a {type(wanted).__name__}")


def objects_in(x: object) -> dict[int, object]:
    """A collection and all that it holds, also in collections inside, by id."""
    waiting, seen = [x], {id(x): x}
    for item in waiting:  # which grows
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, COLLECTIONS) else ()
        new = [part for part in inner if id(part) not in seen]
        seen |= {id(part): part for part in new}
        waiting += new
    return seen


def separate(x: object, keys: Iterable[str]) -> None:
    """Give memory of its own to a weight that the older `torch.nn.utils.spectral_norm` made in that of another.

    What is restored for `weight` would overwrite `weight_orig`.
    """
    for key in keys:
        *path, last = key.split(".")
        here = at(x, path)
        if isinstance(here, nn.Module) and f"{last}_orig" in here._parameters:
            weight = vars(here).get(last)
            if isinstance(weight, Tensor):
                weight.data = weight.data.clone()
