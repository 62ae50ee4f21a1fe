"""Going back to the state before an iteration whose rewards failed, and before a measurement."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlkit.api import Algorithm, Env, State
from rlkit.attributes import FLAT, RANDOM, is_part, put_back, state_of
from rlkit.held import named, of_policy, owner
from rlkit.recording.twins import copied
from rlkit.seeding import generators, global_generators


def noted(algo: Algorithm, env: Env) -> Callable[[], None]:
    """Record what acting changes, and return a function that undoes it if a reward fails, so that resume can repeat it.

    Only on text, where user code gives rewards.
    """
    if env.kind != "text":
        return lambda: None
    go_back, before = remembered(algo, algo.saved), copied(env.state_dict())

    def both() -> None:
        go_back()
        env.load_state_dict(before)

    return both


@contextmanager
def as_before(algo: Algorithm, env: Env) -> Iterator[None]:
    """Measure the policy, which is then as it was: its generators, its buffers, and what `saved` names of it.

    So are parameters that do not learn, in which some keep running means; on text they are a model of many gigabytes.
    """
    go_back = remembered(algo, of_policy(algo, env), frozen=env.kind != "text")
    try:
        yield
    finally:
        go_back()


def remembered(algo: Algorithm, keys: Sequence[str], frozen: bool = False) -> Callable[[], None]:
    """Record what acting changes of these names of `saved`, and return a function that puts it back.

    It is all generators, the buffers of modules, and what has no parameters, such as counters and tables. Parameters
    that learn, optimizers and the buffer change later. frozen: parameters that do not learn may change, too.
    """
    drawn, bound, parts = drawing(algo), named(algo, keys), acting(algo, keys)
    states = {key: state_of(x) for key, x in drawn.items()}
    held = {key: copied(x.state_dict()) for key, x in parts.items()}
    modules = {inner for x in bound.values() if isinstance(x, nn.Module) for inner in x.modules()}
    buffers = [(module, dict(module._buffers)) for module in modules if module._buffers]
    fixed = [p for module in modules for p in module._parameters.values() if frozen and p is not None]
    refill = contents([*(x for x in bound.values() if not is_part(x)), *(found for _, found in buffers), *fixed])

    def go_back() -> None:
        for key, state in states.items():
            put_back(drawn, key, state)
        for key, x in bound.items():  # names may be another's object by now, or a new one
            owner(algo, key)[key.rpartition(".")[2]] = x
        for module, found in buffers:
            for name, buffer in found.items():  # a scripted module takes no other mapping
                module._buffers[name] = buffer
        refill()
        for key, x in parts.items():
            x.load_state_dict(held[key])

    return go_back


def contents(found: Sequence[object]) -> Callable[[], None]:
    """Note what these values hold, at any depth, and return a function that puts it back into the very same objects.

    Other objects may refer to each of them. Parameters that learn do not change while a policy acts.
    """
    waiting, seen = [*found], dict[int, object]()
    tensors: list[tuple[Tensor, Tensor]] = []
    arrays: list[tuple[NDArray[Any], NDArray[Any]]] = []
    draws: list[tuple[object, object]] = []
    groups: list[tuple[Any, Any]] = []  # Any: each kind of collection, and a list or a dict of what is in it
    for x in waiting:  # which grows
        if type(x) in FLAT or id(x) in seen:
            continue
        seen[id(x)] = x
        if isinstance(x, Tensor) and not (learns(x) or nn.parameter.is_lazy(x)):
            tensors.append((x, x.detach().clone()))
        elif isinstance(x, np.ndarray):
            arrays.append((x, x.copy()))
        elif isinstance(x, RANDOM):
            draws.append((x, state_of(x)))
        elif isinstance(x, dict | list | set | deque):
            groups.append((x, dict(x) if isinstance(x, dict) else list(x)))
            waiting += x.values() if isinstance(x, dict) else x
        elif isinstance(x, tuple | frozenset):
            waiting += x

    def refill() -> None:
        for group, items in groups:
            group.clear()
            group.extend(items) if isinstance(group, list | deque) else group.update(items)
        for tensor, values in tensors:
            fill(tensor, values)
        for array, numbers in arrays:
            if array.flags.writeable and array.shape == numbers.shape:
                np.copyto(array, numbers)
        for generator, state in draws:
            put_back({"": generator}, "", state)

    return refill


def learns(x: Tensor) -> bool:
    return isinstance(x, nn.Parameter) and x.requires_grad


def fill(x: Tensor, values: Tensor) -> None:
    """Put values into a tensor. Nothing writes into one whose elements share memory, and so it needs none."""
    with torch.inference_mode(x.is_inference()), torch.no_grad():
        if x.shape != values.shape or x.dtype != values.dtype:
            x.data = values
        elif x.layout is not torch.strided or owns_elements(x):
            x.copy_(values)


def owns_elements(x: Tensor) -> bool:
    return not any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))


def acting(algo: Algorithm, keys: Sequence[str]) -> dict[str, Any]:
    """The saved objects with a state_dict that may change while the algorithm acts."""
    held = named(algo, [key for key in keys if key != "buffer"])
    return {key: x for key, x in held.items() if is_part(x) and not isinstance(x, nn.Module | torch.optim.Optimizer)}


def plain(algo: Algorithm, keys: Sequence[str]) -> State:
    """The values of those attributes that have no state_dict."""
    return {key: state_of(x) for key, x in named(algo, keys).items() if not is_part(x)}


def drawing(algo: Algorithm) -> dict[str, object]:
    """All generators of an algorithm and its policy, and the global ones, by name."""
    mine = generators(algo) | {f"policy.{key}": x for key, x in generators(algo.policy).items()}
    return {**mine, **global_generators()}
