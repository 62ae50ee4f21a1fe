"""Going back to the state before an iteration whose rewards failed."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from rlkit.api import Algorithm, Env, State
from rlkit.attributes import put_back, state_of
from rlkit.held import is_part, named, owner
from rlkit.recording.twins import copied, ready
from rlkit.seeding import generators, global_generators


def noted(algo: Algorithm, env: Env) -> Callable[[], None]:
    """Record what acting changes, and return a function that undoes it if a reward fails, so that resume can repeat it.

    Only on text, where user code gives rewards: generators, and what `saved` names, such as counters and tables. Not
    modules, optimizers and the buffer, which change later.
    """
    if env.kind != "text":
        return lambda: None
    drawn = drawing(algo)
    states, before = {key: state_of(x) for key, x in drawn.items()}, env.state_dict()
    mine, parts = copied(plain(algo, algo.saved)), acting(algo)
    held = {key: copied(x.state_dict()) for key, x in parts.items()}
    bound = named(algo, algo.saved)

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
        env.load_state_dict(before)

    return go_back


def acting(algo: Algorithm) -> dict[str, Any]:
    """The saved objects with a state_dict that may change while the algorithm acts."""
    held = named(algo, [key for key in algo.saved if key != "buffer"])
    return {key: x for key, x in held.items() if is_part(x) and not isinstance(x, nn.Module | torch.optim.Optimizer)}


def plain(algo: Algorithm, keys: Sequence[str]) -> State:
    """The values of those attributes that have no state_dict."""
    return {key: state_of(x) for key, x in named(algo, keys).items() if not is_part(x)}


def drawing(algo: Algorithm) -> dict[str, object]:
    """All generators of an algorithm and its policy, and the global ones, by name."""
    mine = generators(algo) | {f"policy.{key}": x for key, x in generators(algo.policy).items()}
    return {**mine, **global_generators()}
