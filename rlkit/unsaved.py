"""Which attributes of an algorithm, its parts and its environment no checkpoint holds."""

import dis
from collections.abc import Iterator
from functools import cache, partial
from types import FunctionType, MethodType, ModuleType

import torch
from torch import nn

from rlkit.api import Algorithm, Env
from rlkit.attributes import COLLECTIONS, RANDOM, STATE, TORCH, at, can_be_saved, held_by, is_part, is_state

COMPILED = ("dynamo_ctx", "get_compiler_config")  # attributes of what torch.compile makes of a module
FUNCTIONS = (FunctionType, MethodType, partial)


def unsaved(algo: Algorithm) -> Iterator[tuple[str, object]]:
    """Each attribute that no checkpoint holds, by name, including those of saved parts (`policy.scale`)."""
    for key, x in {**shared(type(algo)), **vars(algo)}.items():
        if key not in (*algo.saved, "progress"):
            yield key, x
    # A dict, as what `policy` holds inside may also be named itself (`policy.actor`).
    held = {f"{part}.{key}": x for part in algo.saved for key, x in inside(at(algo, part.split(".")))}
    yield from ((key, x) for key, x in held.items() if key not in algo.saved)


def partly(algo: Algorithm) -> dict[int, set[str]]:
    """The objects without a state_dict of which `saved` names attributes, by id, and these names (`helper.level`)."""
    found: dict[int, set[str]] = {}
    for *path, last in (key.split(".") for key in algo.saved):
        if path and is_plain(held := at(algo, path)):
            found.setdefault(id(held), set()).add(last)
    return found


def is_plain(x: object) -> bool:
    """Whether it is an object with attributes that cannot be saved, for it has no state_dict."""
    other = isinstance(x, (*COLLECTIONS, *STATE, type, *FUNCTIONS, ModuleType)) or hasattr(x, "state_dict")
    return hasattr(x, "__dict__") and not other and not can_be_saved(x)


def shared(kind: type) -> dict[str, object]:
    """Attributes that all instances of a class share and can change: `memory = []` in its body."""
    found = {key: x for base in reversed(kind.__mro__) for key, x in vars(base).items() if not key.startswith("__")}
    return {key: x for key, x in found.items() if isinstance(x, (*COLLECTIONS, *STATE))}


def inside(part: object) -> Iterator[tuple[str, object]]:
    """The attributes of a part that are not in its state_dict."""
    if isinstance(part, nn.Module):
        for path, module in part.named_modules():
            dot = f"{path}." if path else ""
            # torch keeps what it has compiled when a method or a module is first called
            held = {key: x for key, x in vars(module).items() if not isinstance(x, torch.ScriptMethod)}
            held = {key: x for key, x in held.items() if key not in COMPILED}
            yield from ((f"{dot}{key}", x) for key, x in held.items() if key not in TORCH or own(key, x))
            yield from ((f"{dot}{key}", module._buffers[key]) for key in module._non_persistent_buffers_set)
    elif is_part(part):
        held, added = part.state_dict(), added_to(part)  # type: ignore[attr-defined]  # is_part
        # Its own state_dict is trusted with objects; a number that it leaves out is one that was forgotten. What torch
        # notes in an optimizer begins with an underscore.
        torchs = isinstance(part, torch.optim.Optimizer)
        for key, x in held_by(part).items():
            is_number = not is_state(x) and can_be_saved(x) and not (torchs and key.startswith("_"))
            if key not in held and (is_number or key in added):
                yield key, x
    elif isinstance(part, RANDOM):  # of a class of the user's: its state has what the library's class holds
        yield from ((key, x) for key, x in held_by(part).items() if key != "gauss_next")


def added_to_env(env: Env) -> dict[str, object]:
    """Plain values, tensors and generators that a class adds to an environment of rlkit, by name.

    What else it holds, such as a simulator or a connection, is its own affair.
    """
    added = added_to(env)
    return {key: x for key, x in held_by(env).items() if key in added and can_be_saved(x) and not is_part(x)}


def added_to(part: object) -> set[str]:
    """The attributes that a class adds to one of rlkit or torch whose state_dict it inherits, which lacks them."""
    bases = type(part).__mro__
    if is_library(bases[0]) or not is_library(next((base for base in bases if "state_dict" in vars(base)), object)):
        return set()
    return held_by(part).keys() - set_by(bases) - {"_opt_called"}  # which a scheduler of torch sets


def is_library(kind: type) -> bool:
    name = f"{kind.__module__}."
    return name.startswith(("rlkit.", "torch.")) and not name.startswith("rlkit.algorithms.")


@cache
def set_by(bases: tuple[type, ...]) -> frozenset[str]:
    """The names of attributes that the classes of rlkit and torch among these set."""
    functions = [x for base in bases if is_library(base) for x in vars(base).values() if isinstance(x, FunctionType)]
    steps = [step for function in functions for step in dis.get_instructions(function)]
    return frozenset(str(step.argval) for step in steps if step.opname == "STORE_ATTR")


def own(key: str, x: object) -> bool:
    """Whether an attribute of every module is specific to this one: its mode, and its hooks."""
    return key == "training" or ("hooks" in key and bool(x))
