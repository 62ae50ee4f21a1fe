"""Attributes beside an object's state_dict: whether one is state, whether it changed, saving and restoring."""

import hashlib
import logging
import random
from array import array
from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from functools import partial
from io import IOBase
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from rlkit import shards

VIEWS = (KeysView, ValuesView, ItemsView)
COLLECTIONS = (dict, list, tuple, AbstractSet, deque, *VIEWS)
RANDOM = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
STATE = (Tensor, nn.Module, np.ndarray, Iterator, *RANDOM)

PLAIN = (bool, int, float, complex, str, bytes, type(None))
NUMBERS = {bool, int, float}
NUMBER = (bool, int, float, np.number, np.bool_)
NODES = 10**6  # most objects that are examined; those beyond count as unchanged, and not as state
TORCH = frozenset(vars(nn.Module()))  # attributes of every module: parameters, children, hooks


class Derived:
    """Base class of objects that are recomputed from saved state when needed, such as weights in another precision."""


UNSEEN = (Derived, logging.Logger, logging.Handler)  # loggers are changed by others, and no result depends on them


def is_state(x: object, known: AbstractSet[int] = frozenset()) -> bool:
    """Whether a run would lose state without this object, judging by its type; objects in `known` (ids) are saved.

    State is a tensor, an array, an object with a state_dict, a random generator, an iterator, or a collection that
    contains one. A class, an open file, and a module without parameters and buffers (nn.MSELoss) are not state.
    """
    seen: dict[int, object] = {}  # the collections themselves, too: the id of one that is gone is given to another
    waiting = [x]
    while waiting and len(seen) < NODES:
        item = waiting.pop()
        if id(item) in known or id(item) in seen:
            continue
        if isinstance(item, COLLECTIONS):
            seen[id(item)] = item
            waiting += item.values() if isinstance(item, dict) else item
        elif _is_state(item):
            return True
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


def digest(x: object, known: AbstractSet[int] = frozenset()) -> str:
    """A fingerprint of everything reachable from an object; objects in `known` (ids) count only by their presence.

    Collections and attributes are visited. Of objects that cannot be examined (a file, a lock) only the type counts.
    """
    found = hashlib.sha1(usedforsecurity=False)  # the fastest of the library's that no accident deceives
    seen: dict[int, object] = {}  # as in is_state
    waiting = [x]
    for _ in range(NODES):
        if not waiting:
            break
        item = waiting.pop()
        found.update(f"{type(item).__qualname__}:".encode())
        if isinstance(item, PLAIN) and not isinstance(item, bytes):
            found.update(f"{item!r};".encode())
        elif id(item) not in known and id(item) not in seen:
            seen[id(item)] = item
            if (content := _content(item)) is not None:
                found.update(content)
            waiting += _inside(item)
    return found.hexdigest()


def _content(x: object) -> memoryview | None:
    """The bytes of a tensor or an array, without a copy if they are contiguous."""
    if isinstance(x, bytes | bytearray | array):
        return _bytes(np.frombuffer(x, np.uint8))
    if isinstance(x, np.ndarray | np.generic) and not x.dtype.hasobject:
        return _bytes(np.asarray(x))
    if isinstance(x, Tensor) and _has_bytes(x):
        # First viewed as bytes: NumPy lacks bfloat16.
        whole = shards.mine(x.detach()).resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        return _bytes(whole.cpu().numpy())
    return None


def _bytes(x: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8).data if x.nbytes else memoryview(b"")


def _has_bytes(x: Tensor) -> bool:
    return x.layout is torch.strided and not x.is_quantized and x.device.type != "meta"


def _inside(x: object) -> list[Any]:
    """The parts of an object, in a deterministic order."""
    if isinstance(x, (type, ModuleType, *UNSEEN)):
        return []
    if isinstance(x, RANDOM):
        return [state_of(x)]
    if isinstance(x, Tensor):
        return [str(x.dtype), *x.shape]
    if type(x).__module__.startswith("torch.distributed."):  # what FSDP2 notes of its passes
        return []
    if isinstance(x, TensorDictBase):  # its attributes are notes of its own about what was done with it
        return [*x.batch_size, *(part for pair in x.items(include_nested=True, leaves_only=True) for part in pair)]
    if isinstance(x, np.ndarray | np.generic):
        return [str(x.dtype), *x.shape, x.tolist() if x.dtype.hasobject else None, *_attributes(x)]
    if isinstance(x, FunctionType):
        if plain := vars(x).get("_torchdynamo_orig_callable"):  # by torch.compile, which keeps its caches in the rest
            return [plain]
        cells = [_attributes(cell) for cell in x.__closure__ or ()]
        return [*cells, x.__defaults__, x.__kwdefaults__, vars(x)]
    if isinstance(x, partial):
        return [x.func, x.args, x.keywords, vars(x)]
    if isinstance(x, MethodType | BuiltinFunctionType):
        return [x.__self__]  # the object, or the module
    if isinstance(x, set | frozenset):
        return [len(x), *sorted(x, key=_rank), *_attributes(x)]
    if isinstance(x, dict):
        return [part for pair in x.items() for part in pair] + _attributes(x)
    if isinstance(x, (list, tuple, deque, AbstractSet)):
        return [len(x), *x, *_attributes(x)]
    return _attributes(x) or ([repr(x)] if isinstance(x, Iterator) else [])  # itertools.count tells its number


def _rank(x: object) -> tuple[int, str]:
    """A place among the members of a set that is the same in an equal set; -1 and -2 have one hash."""
    return hash(x), repr(x) if isinstance(x, PLAIN) else ""


def _attributes(x: object) -> list[Any]:
    names = [key for kind in type(x).__mro__ for key in vars(kind).get("__slots__", ()) if not key.startswith("__")]
    names += ["cell_contents"] if type(x).__name__ == "cell" else []  # what a function has closed over
    held = {key: getattr(x, key) for key in names if hasattr(x, key)} | (vars(x) if hasattr(x, "__dict__") else {})
    return [part for pair in held.items() for part in pair]


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
    return "None" if x is None else f"a {type(x).__name__}"


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
    if isinstance(x, Tensor) and isinstance(value, Tensor) and x.dtype == value.dtype:
        x.data.copy_(value)  # of a parameter its values
    elif isinstance(x, np.ndarray) and isinstance(value, np.ndarray) and x.dtype == value.dtype:
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
