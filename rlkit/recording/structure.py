"""The structure of a state as JSON beside its tensors: nested dicts, lists, tuples, and types that JSON lacks."""

import numpy as np
import torch
from torch import Tensor


def encode(value: object, path: str, tensors: dict[str, Tensor]) -> object:
    """JSON for the structure. Types that JSON lacks become {"$what": ...}; tensors go into `tensors`, keyed by path."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"$tensor": path}
    if isinstance(value, np.ndarray | np.generic):
        tensors[path] = torch.from_numpy(np.array(value))
        return {"$array" if isinstance(value, np.ndarray) else "$scalar": path}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: encode(item, f"{path}/{key!r}", tensors) for key, item in value.items()}
        # A key may itself hold tensors, and two keys may look alike: the index makes their paths distinct.
        pairs = [(f"{path}/{i}", key, item) for i, (key, item) in enumerate(value.items())]
        return {"$items": [[encode(k, f"{at}/key", tensors), encode(x, at, tensors)] for at, k, x in pairs]}
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__} at {path or 'its root'}")


def decode(value: object, tensors: dict[str, Tensor]) -> object:
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    match next(iter(value.items()), None):
        case ("$tensor", str(name)):
            return tensors[name]
        case ("$array", str(name)):
            return tensors[name].numpy()
        case ("$scalar", str(name)):
            scalar: object = tensors[name].numpy()[()]
            return scalar
        case ("$tuple", list(items)):
            return tuple(decode(item, tensors) for item in items)
        case ("$items", list(items)):
            return {decode(key, tensors): decode(item, tensors) for key, item in items}
    return {key: decode(item, tensors) for key, item in value.items()}
