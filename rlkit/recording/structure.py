"""The structure of a state as JSON beside its tensors: nested dicts, lists, tuples, and types that JSON lacks."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlkit import shards
from rlkit.attributes import laid, order
from rlkit.errors import UserError

KINDS: dict[str, Any] = {each.__name__: each for each in (OrderedDict, Counter, defaultdict, deque, set, frozenset)}
# What a defaultdict may make.
MADE: dict[str, Any] = {"None": None} | {each.__name__: each for each in (bool, int, float, str, list, dict, set)}
ABSENT = (torch.complex128, torch.complex32)  # types of numbers that safetensors does not have


def encode(value: object, path: str, tensors: dict[str, Tensor], seen: dict[int, object] | None = None) -> object:
    """JSON for the structure. Types that JSON lacks become {"$what": ...}; tensors go into `tensors`, keyed by path.

    seen: where it is given, what stands for each tensor, array, list and dict so far, by its id: where one stands
    again, `decode` will put the same object. A list or dict is named by how many of them all ended before.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if seen is not None and id(value) in seen:
        return seen[id(value)]
    found = _encode(value, path, tensors, seen)
    if seen is not None and isinstance(value, Tensor | np.ndarray | list | dict):
        seen[id(value)] = {"$same": len(seen)} if isinstance(value, list | dict) else found
    return found


def _encode(value: object, path: str, tensors: dict[str, Tensor], seen: dict[int, object] | None) -> object:
    if isinstance(value, Tensor):
        tensors[path] = dense(value, path)
        return {"$tensor": path, **in_memory(value)}
    if isinstance(value, np.ndarray | np.generic):
        tensors[path] = dense(of_array(np.array(value), path), path)
        return {"$array": path, **in_memory(value)} if isinstance(value, np.ndarray) else {"$scalar": path}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{path}/{i}", tensors, seen) for i, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if (of := kind(value)) and isinstance(value, Iterable):
        items = list(value.items() if isinstance(value, dict) else value)
        inner = sorted(items, key=repr) if isinstance(value, set | frozenset) else items
        return {"$kind": of, "of": [encode(item, f"{path}/{i}", tensors) for i, item in enumerate(inner)]}
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: encode(item, f"{path}/{key!r}", tensors, seen) for key, item in value.items()}
        # A key may itself hold tensors, and two keys may look alike: the index makes their paths distinct.
        pairs = [(f"{path}/{i}", key, item) for i, (key, item) in enumerate(value.items())]
        return {"$items": [[encode(k, f"{at}/key", tensors), encode(x, at, tensors, seen)] for at, k, x in pairs]}
    what = f"{type(value).__name__} {path or 'at its root'}"
    raise UserError(
        f"a checkpoint cannot hold the {what}: keep numbers, texts, tensors, arrays, and collections of them"
    )


def kind(value: object) -> list[object]:
    """The name of a collection of the standard library, with a deque's maxlen or the type that a defaultdict makes.

    Empty for all others, and for what is saved as a dict: a module's state, a defaultdict that makes something else.
    """
    name = type(value).__name__
    if KINDS.get(name) is not type(value) or hasattr(value, "_metadata"):
        return []
    if isinstance(value, deque):
        return [name, value.maxlen]
    if not isinstance(value, defaultdict):
        return [name]
    makes = [made for made, found in MADE.items() if found is value.default_factory]
    return [name, *makes] if makes else []


def of_kind(name: str, detail: list[object], items: list[Any]) -> object:  # Any: pairs where it is a kind of dict
    """The collection of this kind with these items. Raises: TypeError, ValueError or LookupError for a changed file."""
    match name, detail:
        case "deque", [int() | None as most] if most is None or 0 <= most < 2**63:
            return deque(items, most)
        case "defaultdict", [str(made)]:
            return defaultdict(MADE[made], items)
        case "Counter", []:
            return Counter(dict(items))
        case "OrderedDict" | "set" | "frozenset", []:
            return KINDS[name](items)
    raise ValueError(f"no collection is {name} {detail}")


def in_memory(x: Tensor | NDArray[Any]) -> dict[str, list[int]]:
    """How the numbers lie in memory, where that is not row after row; sharded tensors are never otherwise."""
    found = [] if isinstance(x, Tensor) and shards.any_in([x]) else order(x)
    return {"$order": found} if found else {}


def ordered(x: Tensor, value: dict[str, Any]) -> Tensor:
    """The tensor of a file, as it lay in memory."""
    return laid(x, found) if (found := value.get("$order")) else x


def dense(x: Tensor, path: str) -> Tensor:
    """The tensor as a file can hold it. Raises: UserError where it is sparse, or of another type than files have."""
    if x.layout is not torch.strided or x.is_quantized or x.dtype in ABSENT:
        kind = f"{x.dtype}, {x.layout}".replace("torch.", "")
        raise UserError(f"a checkpoint cannot hold the tensor {path} ({kind}): keep a dense one, of real numbers")
    return x.resolve_conj().resolve_neg()


def of_array(x: NDArray[Any], path: str) -> Tensor:
    try:
        return torch.from_numpy(x)
    except (TypeError, ValueError):  # ValueError: of another byte order
        keep = "keep one of a type of torch, in native byte order"
        raise UserError(f"a checkpoint cannot hold the array {path} ({x.dtype}): {keep}") from None


def decode(value: object, tensors: dict[str, Tensor], found: dict[int | str, object] | None = None) -> object:
    """What `encode` was given. found: where `seen` was given, the tensors, arrays, lists and dicts so far."""
    if not isinstance(value, list | dict):
        return value
    what, name = next(iter(value.items()), ("", None)) if isinstance(value, dict) else ("", None)
    if what == "$same" and found is not None:
        return found[name]  # type: ignore[index]  # of a changed file it may be anything, which is an error
    if what in ("$tensor", "$array") and isinstance(name, str) and found is not None:
        if name not in found:
            found[name] = _decode(value, tensors, None)
        return found[name]
    whole = _decode(value, tensors, found)
    if found is not None and isinstance(whole, list | dict):
        found[len(found)] = whole
    return whole


def _decode(value: object, tensors: dict[str, Tensor], found: dict[int | str, object] | None) -> object:
    if isinstance(value, list):
        return [decode(item, tensors, found) for item in value]
    assert isinstance(value, dict)
    match next(iter(value.items()), None):
        case ("$tensor", str(name)):
            return ordered(tensors[name], value)
        case ("$array", str(name)):
            return ordered(tensors[name], value).numpy()
        case ("$scalar", str(name)):
            scalar: object = tensors[name].numpy()[()]
            return scalar
        case ("$tuple", list(items)):
            return tuple(decode(item, tensors, found) for item in items)
        case ("$kind", [str(name), *detail]):
            return of_kind(name, detail, [decode(item, tensors) for item in value["of"]])
        case ("$items", list(items)):
            return {decode(key, tensors): decode(item, tensors, found) for key, item in items}
    return {key: decode(item, tensors, found) for key, item in value.items()}


def own_memory(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU that do not share memory: safetensors refuses views and tied tensors."""
    seen: set[int] = set()
    for name, x in tensors.items():
        x = x.detach().cpu().contiguous()
        storage = x.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != x.nbytes or 0 in x.stride():
            x = x.clone(memory_format=torch.contiguous_format)
        seen.add(x.untyped_storage().data_ptr())
        tensors[name] = x
    return tensors
