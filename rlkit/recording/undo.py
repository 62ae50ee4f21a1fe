"""Going back to the state before an iteration whose rewards failed, and before a measurement."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from rlkit.api import Algorithm, Env, State
from rlkit.attributes import put_back, state_of
from rlkit.held import is_part, named, owner
from rlkit.recording.twins import copied, ready
from rlkit.seeding import generators, global_generators


def noted(algo: Algorithm, env: Env) -> Callable[[], None]:
    """Record what acting changes, and return a function that undoes it if a reward fails, so that resume can repeat it.

    Only on text, where user code gives rewards.
    """
    if env.kind != "text":
        return lambda: None
    go_back, before = remembered(algo, algo.saved), env.state_dict()

    def both() -> None:
        go_back()
        env.load_state_dict(before)

    return both


@contextmanager
def as_before(algo: Algorithm) -> Iterator[None]:
    """Measure the policy, which is then as it was: its generators, its buffers, and what `saved` names of it."""
    go_back = remembered(algo, ["policy", *(key for key in algo.saved if key.startswith("policy."))])
    try:
        yield
    finally:
        go_back()


def remembered(algo: Algorithm, keys: Sequence[str]) -> Callable[[], None]:
    """Record what acting changes of these names of `saved`, and return a function that puts it back.

    It is all generators, the buffers of modules, and what has no parameters, such as counters and tables. Parameters,
    optimizers and the buffer change later.
    """
    drawn, bound = drawing(algo), named(algo, keys)
    states = {key: state_of(x) for key, x in drawn.items()}
    mine, parts, kept = copied(plain(algo, keys)), acting(algo, keys), buffers_of(bound.values())
    held = {key: copied(x.state_dict()) for key, x in parts.items()}

    def go_back() -> None:
        for key, state in states.items():
            put_back(drawn, key, state)
        for key, x in bound.items():  # names may be another's object by now, or a new one
            owner(algo, key)[key.rpartition(".")[2]] = x
        for put in ready(algo, mine, tuple(mine)).values():
            with suppress(TypeError):  # it is something else by now: the save that follows refuses it in one line
                put()
        for key, x in parts.items():
            x.load_state_dict(held[key])
        for module, name, tensor, values in kept:
            module._buffers[name] = tensor
            tensor.detach().copy_(values)

    return go_back


def buffers_of(found: Iterable[object]) -> list[tuple[nn.Module, str, Tensor, Tensor]]:
    """Each buffer of these modules: the module that holds it, its name there, itself, and a copy of its values."""
    modules = {inner for x in found if isinstance(x, nn.Module) for inner in x.modules()}
    held = [(module, name, x) for module in modules for name, x in module._buffers.items() if x is not None]
    return [(module, name, x, x.detach().clone()) for module, name, x in held if not nn.parameter.is_lazy(x)]


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
