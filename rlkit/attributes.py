"""What an object holds beside its state_dict: whether it is state, whether it changed, how it is saved and put back."""

import hashlib
import logging
import random
from array import array
from collections import deque
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from collections.abc import Set as AbstractSet
from functools import partial
from io import IOBase
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

VIEWS = (KeysView, ValuesView, ItemsView)
COLLECTIONS = (dict, list, tuple, AbstractSet, deque, *VIEWS)
RANDOM = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
STATE = (Tensor, nn.Module, np.ndarray, Iterator, *RANDOM)
SHARED = (logging.Logger, logging.Handler)  # of the whole process: others change them, and no result depends on them
PLAIN = (bool, int, float, complex, str, bytes, type(None))
NUMBERS = {bool, int, float}
LARGE = 1 << 20  # bytes of a tensor beyond which their sum stands for it
NODES = 10**6  # objects that are looked at; what lies beyond is taken as unchanged
TORCH = frozenset(vars(nn.Module()))  # what a module has of its own: parameters, children, hooks


def is_state(x: object, known: AbstractSet[int] = frozenset(), depth: int = 20) -> bool:
    """Whether a run would lose something without it, as far as its type tells; what is `known` by its id is saved.

    That is a tensor, an array, what has a state_dict, a random generator, an iterator, or a collection with one inside.
    A class, an open file, and a module that holds nothing (nn.MSELoss) are none.
    """
    if id(x) in known or isinstance(x, type):
        return False
    if isinstance(x, COLLECTIONS):
        items = x.values() if isinstance(x, dict) else x
        return depth > 0 and any(is_state(item, known, depth - 1) for item in items)
    if isinstance(x, nn.Module):
        return bool(x.state_dict())
    return (isinstance(x, STATE) and not isinstance(x, IOBase)) or hasattr(x, "state_dict")


def digest(x: object, known: AbstractSet[int] = frozenset()) -> str:
    """A fingerprint of all that can be reached from an object; of what is `known` by its id, only that it is there.

    Collections and attributes are walked. Of what cannot be looked into (a file, a lock) only the type counts.
    """
    found, seen, waiting = hashlib.blake2b(digest_size=16), set(known), [x]
    for _ in range(NODES):
        if not waiting:
            break
        item = waiting.pop()
        found.update(f"{type(item).__qualname__}:".encode())
        if isinstance(item, PLAIN):
            found.update(f"{item!r};".encode())
        elif id(item) not in seen:
            seen.add(id(item))
            content = _content(item)
            waiting += _inside(item) if content is None else [content]
    return found.hexdigest()


def _content(x: object) -> bytes | str | None:
    """What a random generator, a tensor or an array holds; None for all else."""
    if isinstance(x, RANDOM):
        return digest(state_of(x))
    if isinstance(x, bytearray | array):
        return bytes(x)
    if isinstance(x, np.ndarray | np.generic):
        return (
            f"{x.dtype} {x.shape} {x.tolist()!r}"
            if x.dtype.hasobject
            else f"{x.dtype} {x.shape}".encode() + x.tobytes()
        )
    if not isinstance(x, Tensor):
        return None
    shape = f"{x.dtype} {tuple(x.shape)}".encode()
    if x.layout is not torch.strided or x.is_quantized or x.device.type == "meta":
        return shape
    whole = x.detach().contiguous().reshape(-1).view(torch.uint8)
    return shape + (whole.cpu().numpy().tobytes() if len(whole) <= LARGE else str(int(whole.sum())).encode())


def _inside(x: object) -> list[Any]:
    """What an object is made of, in an order that does not change by itself."""
    if isinstance(x, (type, ModuleType, *SHARED)):
        return []
    if isinstance(x, FunctionType):
        if plain := vars(x).get("_torchdynamo_orig_callable"):  # by torch.compile, which keeps its caches in the rest
            return [plain]
        cells = [_attributes(cell) for cell in x.__closure__ or ()]
        return [*cells, x.__defaults__, x.__kwdefaults__, vars(x)]
    if isinstance(x, partial):
        return [x.func, x.args, x.keywords, vars(x)]
    if isinstance(x, MethodType | BuiltinFunctionType):
        return [x.__self__]  # the object, or the module
    if isinstance(x, AbstractSet) and not isinstance(x, VIEWS):
        return sorted(map(digest, x))
    if isinstance(x, dict):
        return [part for pair in x.items() for part in pair] + _attributes(x)
    if isinstance(x, (list, tuple, deque, *VIEWS)):
        return [len(x), *x, *_attributes(x)]
    return _attributes(x) or ([repr(x)] if isinstance(x, Iterator) else [])  # itertools.count tells its number


def _attributes(x: object) -> list[Any]:
    names = [key for kind in type(x).__mro__ for key in vars(kind).get("__slots__", ()) if not key.startswith("__")]
    names += ["cell_contents"] if type(x).__name__ == "cell" else []  # what a function has closed over
    held = {key: getattr(x, key) for key in names if hasattr(x, key)} | (vars(x) if hasattr(x, "__dict__") else {})
    return [part for pair in held.items() for part in pair]


def can_be_saved(x: object) -> bool:
    """Whether a checkpoint can hold it: what has a load_state_dict, a random generator, tensors and plain values."""
    if isinstance(x, RANDOM) or hasattr(x, "load_state_dict"):
        return True
    if isinstance(x, AbstractSet | deque):
        return all(map(_is_data, x))
    return _is_data(dict(x) if isinstance(x, dict) else x)


def _is_data(x: object, depth: int = 20) -> bool:
    """Whether a checkpoint holds it as it is."""
    if type(x) in (list, tuple):
        return depth > 0 and all(_is_data(item, depth - 1) for item in x)  # type: ignore[attr-defined]  # of the type()
    if type(x) is dict:
        return depth > 0 and all(_is_data(item, depth - 1) for pair in x.items() for item in pair)
    if isinstance(x, np.ndarray | np.generic):
        return x.dtype.kind in "biufc"
    return isinstance(x, Tensor) or type(x) in (bool, int, float, str, type(None))


def state_of(x: Any) -> Any:
    """What a checkpoint holds of an attribute, where `can_be_saved`; `put_back` takes it."""
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
    return dict(x) if isinstance(x, dict) else x


def put_back(owner: dict[str, Any], key: str, value: Any) -> None:
    """Give an attribute the state that it had; in place where it can be: others may hold it, such as an optimizer.

    Raises: TypeError or ValueError where the state is none of this attribute.
    """
    x = owner[key]
    if isinstance(x, Tensor | np.ndarray):
        check_alike(value, x.data if isinstance(x, Tensor) else x, shapes=True)  # of a parameter its values
        if isinstance(x, Tensor):
            x.data.copy_(value)
        else:
            np.copyto(x, value)
    elif isinstance(x, torch.Generator):
        x.set_state(value)
    elif isinstance(x, np.random.Generator):
        x.bit_generator.state = value
    elif isinstance(x, np.random.RandomState):
        x.set_state(value)
    elif isinstance(x, random.Random):
        x.setstate(value)
    elif isinstance(x, dict | list | set | deque):
        if not isinstance(value, dict if isinstance(x, dict) else list):
            raise TypeError(f"it is no {type(x).__name__}")
        x.clear()
        x.extend(value) if isinstance(x, list | deque) else x.update(value)
    elif isinstance(x, frozenset):
        owner[key] = frozenset(value)
    elif type(value) is type(x) or {type(x), type(value)} <= NUMBERS:
        owner[key] = value
    else:
        raise TypeError(f"it is no {type(x).__name__}")


def check_alike(found: object, wanted: object, shapes: bool) -> None:
    """Refuse a state whose values are of other types, and with `shapes` whose arrays are of other shapes.

    Arguments:
        found: what a file holds.
        wanted: what a fresh object has in its place; where that is empty, or None, anything may follow.

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
