"""Fingerprints of objects: by them, a change of what no checkpoint holds is noticed."""

import hashlib
import logging
import operator
import re
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase
from torch import Tensor

from rlkit import shards
from rlkit.attributes import FLAT, NODES, PLAIN, RANDOM, Derived, state_of
from rlkit.outside import FOLDER

EMPTY: Mapping[int, AbstractSet[str]] = MappingProxyType({})
MANY = 1000  # what is in a larger collection is looked at last: where it is too much, all beside it has been seen
NEAR = 10**5  # most objects that are looked through for what a policy refers to
UNSEEN = (Derived, logging.Logger, logging.Handler)  # loggers are changed by others, and no result depends on them
METHODS = (BuiltinFunctionType, MethodWrapperType)  # written in C, of an object or a module
UNBOUND = (MethodDescriptorType, WrapperDescriptorType)  # methods of a class written in C, as torch.Tensor.tanh
CALLED = (type, FunctionType, *UNBOUND)  # that have a module and a name
NAMED = (operator.itemgetter, operator.attrgetter, operator.methodcaller, np.ufunc)
TORCHS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
WRITTEN = (Decimal, date, time, timedelta, range, PurePath, np.dtype, *NAMED, *TORCHS)  # whose repr tells the value


def digest(x: object, known: AbstractSet[int] = frozenset(), named_in: Mapping[int, AbstractSet[str]] = EMPTY) -> str:
    """A fingerprint of everything reachable from an object; objects in `known` (ids) count only by their presence.

    named_in: names of attributes of plain objects (by id) that a checkpoint has, and that do not count.

    Collections and attributes are visited. Of objects that cannot be examined (a file, a lock) only the type counts.
    Numbers and texts are taken with the object that holds them, and do not count towards NODES.
    """
    found = hashlib.sha1(usedforsecurity=False)  # the fastest of the library's that no accident deceives
    seen: dict[int, int] = {}  # the number of each object, by its id
    kept: list[object] = []  # the objects: the id of one that is gone is given to another
    waiting, later, parts = deque[Any](), deque[Any](), [x]
    for _ in range(NODES):
        others = [part for part in parts if type(part) not in FLAT]
        flat = [part if type(part) in FLAT else ... for part in parts] if others else parts
        found.update(f"{flat};".encode())
        (waiting if len(others) <= MANY else later).extend(others)
        if not (waiting or later):
            break
        item, parts = (waiting or later).popleft(), []
        found.update(f"{type(item).__qualname__}:".encode())
        if is_value(item):
            found.update(f"{item!r};".encode())
        elif id(item) in seen:
            found.update(f"{seen[id(item)]};".encode())
        elif id(item) not in known:
            seen[id(item)] = len(kept)
            kept.append(item)
            if (content := _content(item)) is not None:
                found.update(content)
            parts = _inside(item)
            if saved := named_in.get(id(item)):
                pairs = zip(parts[::2], parts[1::2], strict=True)
                parts = [part for pair in pairs if pair[0] not in saved for part in pair]
    return found.hexdigest()


def reachable(x: object, wanted: AbstractSet[int], known: AbstractSet[int] = frozenset()) -> set[int]:
    """Which objects of `wanted` (ids) `digest` would visit; it goes past those in `known`, and stops after NEAR."""
    seen: dict[int, object] = {}
    waiting, later = deque[Any]([x]), deque[Any]()
    missing = set(wanted)
    while (waiting or later) and len(seen) < NEAR and missing:
        item = (waiting or later).popleft()
        if id(item) in seen or id(item) in known or is_value(item):
            continue
        seen[id(item)] = item
        missing.discard(id(item))
        parts = [part for part in _inside(item) if type(part) not in FLAT]
        (waiting if len(parts) <= MANY else later).extend(parts)
    return set(wanted) - missing


def is_value(x: object) -> bool:
    """Whether the repr of an object tells all of it: equal ones may be one object or several."""
    if isinstance(x, PLAIN):
        return not isinstance(x, bytes)
    return isinstance(x, WRITTEN) and not hasattr(x, "__dict__")


def _content(x: object) -> memoryview | None:
    """The bytes of a tensor or an array, without a copy if they are contiguous."""
    if type(x) in (list, tuple, dict):
        return None
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
    if isinstance(x, list | tuple) and type(x) in (list, tuple):  # the most frequent, and without attributes
        return [len(x), *x]
    if isinstance(x, UNSEEN):
        return []
    if isinstance(x, (ModuleType, CodeType, partial, MethodType, *METHODS, *CALLED)):
        return _code(x)
    if isinstance(x, WRITTEN):
        return [repr(x), vars(x) if hasattr(x, "__dict__") else None]
    if isinstance(x, (*RANDOM, np.random.BitGenerator, np.random.SeedSequence)):
        return _random(x)
    if isinstance(x, Tensor):
        return [str(x.dtype), *x.shape]
    if type(x).__module__.startswith("torch.distributed."):  # what FSDP2 notes of its passes
        return []
    if isinstance(x, TensorDictBase):  # its attributes are notes of its own about what was done with it
        return [*x.batch_size, *(part for pair in x.items(include_nested=True, leaves_only=True) for part in pair)]
    if isinstance(x, np.ndarray | np.generic):
        return [str(x.dtype), *x.shape, x.tolist() if x.dtype.hasobject else None, *_attributes(x)]
    if isinstance(x, slice):
        return [x.start, x.stop, x.step]
    if isinstance(x, set | frozenset):
        return [len(x), *sorted(x, key=_rank), *_attributes(x)]
    if isinstance(x, dict | MappingProxyType):
        return [part for pair in x.items() for part in pair] + _attributes(x)
    if isinstance(x, (list, tuple, deque, AbstractSet, ValuesView)):
        return [len(x), *x, *_attributes(x)]
    return _attributes(x) or ([repr(x)] if isinstance(x, Iterator) else [])  # itertools.count tells its number


def _code(x: Any) -> list[Any]:
    """Which function, method, class or module it is, and what it has beside its code."""
    if isinstance(x, ModuleType):
        return [_anew(x.__name__)]
    if isinstance(x, CodeType):
        return [x.co_code, x.co_consts, x.co_names]
    if isinstance(x, partial):
        return [x.func, x.args, x.keywords, vars(x)]
    if isinstance(x, METHODS):
        return [x.__self__, x.__qualname__]  # the object, or the module
    if isinstance(x, MethodType):
        function = x.__func__
        return [x.__self__, *([*_name(function), function.__code__] if isinstance(function, FunctionType) else [])]
    if not isinstance(x, FunctionType):
        return _name(x)
    if plain := vars(x).get("_torchdynamo_orig_callable"):  # by torch.compile, which keeps its caches in the rest
        return [plain]
    cells = [_attributes(cell) for cell in x.__closure__ or ()]
    return [*_name(x), x.__code__, *cells, x.__defaults__, x.__kwdefaults__, vars(x)]


def _name(x: Any) -> list[Any]:
    return [_anew((x.__objclass__ if isinstance(x, UNBOUND) else x).__module__), x.__qualname__]


def _anew(module: str | None) -> str | None:
    """The name of a module; that of a file of the user's, which each run of a program loads anew, as in the first."""
    return module and re.sub(rf"^{FOLDER}\d+", f"{FOLDER}1", module)


def _random(x: Any) -> list[Any]:
    """The state of what draws, and how many children it has spawned."""
    if isinstance(x, RANDOM):
        seeds = [x.bit_generator.seed_seq] if isinstance(x, np.random.Generator) else []
        return [state_of(x), *seeds, *_attributes(x)]
    return [x.state, *([x.seed_seq] if isinstance(x, np.random.BitGenerator) else []), *_attributes(x)]


def _rank(x: object) -> tuple[int, str]:
    """A place among the members of a set that is the same in an equal set; -1 and -2 have one hash."""
    return hash(x), repr(x) if isinstance(x, PLAIN) else ""


def _attributes(x: object) -> list[Any]:
    names = [key for kind in type(x).__mro__ for key in vars(kind).get("__slots__", ()) if not key.startswith("__")]
    names += ["cell_contents"] if type(x).__name__ == "cell" else []  # what a function has closed over
    held = {key: getattr(x, key) for key in names if hasattr(x, key)} | (vars(x) if hasattr(x, "__dict__") else {})
    return [part for pair in held.items() for part in pair]
