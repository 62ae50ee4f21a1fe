"""Attributes of an algorithm that checkpoints do not hold: refused before the run, and as soon as they change.

So is what a checkpoint would hold of one rank alone.
"""

import dis
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlkit import attributes, ranks, shards
from rlkit.api import Algorithm, Env, State
from rlkit.attributes import COLLECTIONS, PLAIN, RANDOM, STATE, TORCH, can_be_saved, form, is_state, order
from rlkit.errors import UserError
from rlkit.fingerprint import digest
from rlkit.finite import leaves
from rlkit.seeding import generators

REPLACED = (*PLAIN, tuple, frozenset)  # types that are replaced instead of restored in place


def is_part(x: object) -> bool:
    """Whether an attribute has a state_dict of its own, by torch's convention; a user's objects may follow it, too."""
    return hasattr(x, "load_state_dict")


def owner(algo: Algorithm, name: str) -> dict[str, Any]:
    """The attributes in which `saved` looks up a name: the algorithm's, or with dots those of a part (`policy.scale`).

    Raises: UserError where there is no such attribute.
    """
    *path, last = name.split(".")
    here: object = algo
    for key in path:
        here = held_by(here).get(key)
    for found in places(here):
        if last in found:
            return found
    kind = type(algo).__name__
    raise UserError(f"{kind}.saved names '{name}', and there is no such attribute: remove it, or set it")


def named(algo: Algorithm, keys: Iterable[str]) -> dict[str, Any]:
    """The attributes of these names of `saved`. Raises: as `owner` does."""
    return {key: owner(algo, key)[key.rpartition(".")[2]] for key in keys}


def held_by(x: object) -> dict[str, Any]:
    """Attributes by name; for a module including its children, parameters and buffers."""
    return {key: held for found in places(x) for key, held in found.items()}


def places(x: object) -> list[dict[str, Any]]:
    """The dictionaries that hold an object's attributes: a module has several of them."""
    own = [vars(x)] if hasattr(x, "__dict__") else []
    return [*own, x._modules, x._parameters, x._buffers] if isinstance(x, nn.Module) else own


def check_saved(algo: Algorithm, env: Env, new: bool = False) -> None:
    """Refuse an algorithm with state that a checkpoint would lose; the message names it all. new: it starts to play."""
    name = type(algo).__name__
    if not isinstance(algo.saved, tuple | list):
        raise UserError(f"{name}.saved is {algo.saved!r}: write a tuple of names, saved = (*Algorithm.saved, 'NAME')")
    if "policy" not in algo.saved:
        raise UserError(
            f"{name}.saved lacks 'policy', which is all that is measured and played of a run: add it, as in "
            "saved = (*Algorithm.saved, 'NAME')"
        )
    for key, x in named(algo, algo.saved).items():
        if not can_be_saved(x):
            inner = attributes.unsaved_in(x)
            raise UserError(
                f"{name}.saved names '{key}', a {type(x).__name__}{f' with {inner} inside' if inner else ''}: only "
                "numbers, texts, tensors, lists, tuples and dicts of them and what has a state_dict can be saved; use "
                "a torch.nn.ModuleList, make it plain, as dict(x) for a module's state_dict x, or give it a state_dict "
                "and a load_state_dict"
            )
    if new:
        check_apart(algo)
    others = {key: x for key, x in vars(algo).items() if key not in algo.saved}
    known = in_saved(algo, env)
    refuse(algo, {key: f"looks like state ({type(x).__name__})" for key, x in others.items() if is_state(x, known)})


def check_apart(algo: Algorithm) -> None:
    """Refuse names of `saved` between which resume could not tell, or whose objects it would replace."""
    name, held = type(algo).__name__, named(algo, algo.saved)
    if both := attributes.shared_by(held):
        raise UserError(
            f"{name}.saved names {both}, which are one object: resume would fill both with the values of the second; "
            "give each a copy of its own, or name only one"
        )
    groups = [group for x in held.values() if isinstance(x, torch.optim.Optimizer) for group in x.param_groups]
    modules = [x for x in held.values() if isinstance(x, nn.Module)]
    kept = {id(p) for group in groups for p in group["params"]}
    kept |= {id(x) for module in modules for x in (*module.parameters(), *module.buffers())}
    for key, x in ((key, x) for key, x in held.items() if isinstance(x, COLLECTIONS)):
        inner = objects_in(x)
        if not kept.isdisjoint(inner):
            raise UserError(
                f"{name}.saved names '{key}', a {type(x).__name__} with tensors that an optimizer or a module holds, "
                "too: resume would replace those in it alone; make it a torch.nn.ParameterList, or do not name it"
            )
        if any(isinstance(part, Tensor) and part.requires_grad for part in inner.values()):
            raise UserError(
                f"{name}.saved names '{key}', a {type(x).__name__} with tensors that learn: resume would put others in "
                "their place, which do not; make it a torch.nn.ParameterList"
            )


def objects_in(x: object) -> dict[int, object]:
    """A collection and all that it holds, also in collections inside, by id."""
    waiting, seen = [x], {id(x): x}
    for item in waiting:  # which grows
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, COLLECTIONS) else ()
        new = [part for part in inner if id(part) not in seen]
        seen |= {id(part): part for part in new}
        waiting += new
    return seen


def in_saved(algo: Algorithm, env: Env) -> set[int]:
    """The ids of saved objects, and of their modules, parameters and buffers: a second reference to one loses nothing.

    They are restored in place, so a second reference sees the restored state; other objects are not included.
    The environment, and generators of the algorithm and its policy, are always saved.
    """
    saved = named(algo, algo.saved).values()
    modules = [module for x in saved if isinstance(x, nn.Module) for module in x.modules()]
    tensors = tensors_of(modules)
    bits = [x.bit_generator for x in saved if isinstance(x, np.random.Generator)]
    always = (algo, env, *generators(algo).values(), *generators(algo.policy).values())
    return {id(x) for x in (*saved, *modules, *tensors, *bits, *always) if not isinstance(x, REPLACED)}


def tensors_of(modules: Iterable[nn.Module]) -> list[Tensor]:
    """The parameters of modules, without those of modules inside, and the buffers that their state_dict holds."""
    found: list[Tensor] = []
    for module in modules:
        found += module.parameters(recurse=False)
        kept = module.named_buffers(recurse=False)
        found += [x for key, x in kept if key not in module._non_persistent_buffers_set]
    return found


def check_unchanged(algo: Algorithm, env: Env, before: dict[str, str] | None) -> None:
    """Refuse state that was added after the run began, and unsaved attributes that have changed since."""
    check_saved(algo, env)
    if before is None:
        return
    for key, x in named(algo, algo.saved).items():
        now = extent(x)
        if now != (was := before.get(key, now)):
            raise UserError(
                f"{type(algo).__name__}.{key} was {was} when the run began and is {now} now, which could not be put "
                "back: let it be what it is from __init__ on"
            )
    then = fingerprints(algo, env)
    refuse(algo, {key: "has changed since the run began" for key in then if then[key] != before.get(key)})


def check_agreed(algo: Algorithm, state: State) -> None:
    """Refuse saved values that differ between ranks. What an optimizer moves is equal: gradients are added up."""
    if ranks.size() == 1:
        return
    values, held = dict(state["numbers"]), named(algo, algo.saved)
    optimizers = [x for x in held.values() if isinstance(x, torch.optim.Optimizer)]
    moved = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    for key, x in state["parts"].items():
        if isinstance(module := held[key], nn.Module):
            inside = (*module.named_buffers(), *module.named_parameters())
            values[key] = {name: tensor for name, tensor in inside if id(tensor) not in moved}
        elif key not in ("optimizer", "buffer"):
            values[key] = x
    shards.check_agreed(type(algo).__name__, leaves(values))


def refuse(algo: Algorithm, found: dict[str, str]) -> None:
    """Raises: UserError that names the attributes, the problem of each, and the line that saves them."""
    if not found:
        return
    kind = type(algo)
    parent = next((base for base in kind.__mro__[1:] if "saved" in vars(base)), Algorithm)
    names = [key for key in (*algo.saved, *found) if key not in vars(parent)["saved"]]
    line = f"(*{parent.__name__}.saved, {', '.join(map(repr, names))})"
    told = ", ".join(f"{kind.__name__}.{key} {why}" for key, why in found.items())
    inside = [key.rpartition(".")[2] for key in found if key.count(".") > 1]
    buffer = f", or in that module self.register_buffer({inside[0]!r}, TENSOR)" if inside else ""
    raise UserError(f"{told} and would not be saved: write saved = {line} in {kind.__name__}{buffer}")


def fingerprints(algo: Algorithm, env: Env) -> dict[str, str]:
    """A fingerprint of each unsaved attribute of the algorithm and its parts; for saved attributes, their form."""
    known = in_saved(algo, env)
    found = {key: digest(x, known) for key, x in unsaved(algo) if id(x) not in known}
    return found | {key: extent(x) for key, x in named(algo, algo.saved).items()}


def extent(x: object) -> str:
    """`form`, and what else must stay the same: how much a module or an optimizer that torch restores holds.

    Of a generator of NumPy it is how many others it has spawned, which its state lacks. Of an array it is how it lies
    in memory.
    """
    if isinstance(x, torch.optim.Optimizer) and _by_torch(type(x).load_state_dict):
        return (
            f"{form(x)} with groups of {' + '.join(str(len(group['params'])) for group in x.param_groups)} parameters"
        )
    if isinstance(x, np.random.Generator) and isinstance(seeds := x.bit_generator.seed_seq, np.random.SeedSequence):
        return form(x) + (f" that has spawned {seeds.n_children_spawned}" if seeds.n_children_spawned else "")
    if isinstance(x, np.ndarray) and (dimensions := order(x)):  # another array could not take the place of this one
        undone = "np.ascontiguousarray puts them in their own"
        return f"{form(x)} with its dimensions in the order {dimensions} in memory ({undone})"
    if not isinstance(x, nn.Module):
        return form(x)
    modules = list(x.modules())
    tensors = tensors_of(modules)
    kinds = {type(module) for module in modules}
    own = not all(_by_torch(f) for kind in kinds for f in (kind.load_state_dict, kind._load_from_state_dict))
    if own or any(m._load_state_dict_pre_hooks for m in modules) or any(map(nn.parameter.is_lazy, tensors)):
        return form(x)
    return f"{form(x)} of {len(tensors)} tensors, {sum(x.numel() for x in tensors):,} numbers"


def _by_torch(method: Callable[..., object]) -> bool:
    return method.__module__.startswith("torch.")


def unsaved(algo: Algorithm) -> Iterator[tuple[str, object]]:
    """Each attribute that no checkpoint holds, by name, including those of saved parts (`policy.scale`)."""
    for key, x in {**shared(type(algo)), **vars(algo)}.items():
        if key not in (*algo.saved, "progress"):
            yield key, x
    for part in (key for key in algo.saved if "." not in key):
        for key, x in inside(vars(algo)[part]):
            if f"{part}.{key}" not in algo.saved:
                yield f"{part}.{key}", x


def shared(kind: type) -> dict[str, object]:
    """Attributes that all instances of a class share and can change: `memory = []` in its body."""
    found = {key: x for base in reversed(kind.__mro__) for key, x in vars(base).items() if not key.startswith("__")}
    return {key: x for key, x in found.items() if isinstance(x, (*COLLECTIONS, *STATE))}


def inside(part: object) -> Iterator[tuple[str, object]]:
    """The attributes of a part that are not in its state_dict."""
    if isinstance(part, nn.Module):
        for path, module in part.named_modules():
            dot = f"{path}." if path else ""
            # torch keeps a compiled method when it is first called
            held = {key: x for key, x in vars(module).items() if not isinstance(x, torch.ScriptMethod)}
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
