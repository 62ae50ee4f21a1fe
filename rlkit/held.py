"""Attributes of an algorithm that checkpoints do not hold: refused before the run, and as soon as they change.

So is what a checkpoint would hold of one rank alone.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlkit import attributes, ranks, shards
from rlkit.api import Algorithm, Env, Lasting, State
from rlkit.attributes import (
    COLLECTIONS,
    PLAIN,
    STATE,
    at,
    can_be_saved,
    form,
    held_by,
    is_state,
    objects_in,
    order,
    places,
)
from rlkit.errors import UserError
from rlkit.fingerprint import MANY, digest, reachable
from rlkit.finite import leaves
from rlkit.seeding import generators
from rlkit.unsaved import added_to_env, is_library, is_plain, partly, unsaved

WORLD = "(environment)"  # before the fingerprints of its attributes
REPLACED = (*PLAIN, tuple, frozenset)  # types that are replaced instead of restored in place


def owner(algo: Algorithm, name: str) -> dict[str, Any]:
    """The attributes in which `saved` looks up a name: the algorithm's, or with dots those of a part (`policy.scale`).

    Raises: UserError where there is no such attribute.
    """
    *path, last = name.split(".")
    for found in places(at(algo, path)):
        if last in found:
            return found
    kind = type(algo).__name__
    raise UserError(f"{kind}.saved names '{name}', and there is no such attribute: remove it, or set it")


def named(algo: Algorithm, keys: Iterable[str]) -> dict[str, Any]:
    """The attributes of these names of `saved`. Raises: as `owner` does."""
    return {key: owner(algo, key)[key.rpartition(".")[2]] for key in keys}


def learning(algo: Algorithm) -> dict[str, nn.Module | Tensor]:
    """What `saved` names that may learn."""
    held = named(algo, algo.saved).items()
    return {key: x for key, x in held if isinstance(x, nn.Module) or (isinstance(x, Tensor) and x.is_leaf)}


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
            raise UserError(
                f"{name}.saved names '{key}', {attributes.named_kind(x)}: only "
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


def of_policy(algo: Algorithm, env: Env) -> list[str]:
    """The names of `saved` that the policy needs to act: `policy`, `policy.NAME`, and what it also refers to itself.

    So it may by an attribute at any depth, a bound method or what a function has closed over; it refers to a number by
    what holds it. What its own state_dict has needs no other name.
    """
    mine = [key for key in algo.saved if of_name(key)]
    if not is_own(algo):  # the policies of rlkit's hold all that they act with
        return mine
    others = {key: x for key, x in named(algo, algo.saved).items() if key not in mine and not is_idle(x)}
    itself = identities(algo.policy) if isinstance(algo.policy, nn.Module) else set()
    ids = {
        key: {id(at(algo, key.split(".")[:-1]))} if isinstance(x, REPLACED) else identities(x) - itself
        for key, x in others.items()
    }
    found = reachable(algo.policy, set().union(*ids.values()), {id(env)}) if ids else set()
    return [*mine, *(key for key in others if not found.isdisjoint(ids[key]))]


def of_name(key: str) -> bool:
    """Whether a name of `saved` says itself that it is of the policy."""
    return key.split(".")[0] == "policy"


def is_own(algo: Algorithm) -> bool:
    """Whether an algorithm is the user's, or one of rlkit's that saves more."""
    return not type(algo).__module__.startswith("rlkit.") or algo.saved != type(algo).saved


def is_idle(x: object) -> bool:
    """Whether no policy acts with it: optimizers, a replay in files."""
    return isinstance(x, torch.optim.Optimizer | Lasting)


def identities(x: object) -> set[int]:
    """The ids of an object, and of the modules, tensors, arrays and generators that it holds."""
    if isinstance(x, nn.Module):
        modules = list(x.modules())
        return {id(part) for part in (*modules, *tensors_of(modules))}
    inner = x.values() if isinstance(x, dict) else x if isinstance(x, COLLECTIONS) else held_by(x).values()
    return {id(x), *(id(part) for part in islice(inner, MANY) if isinstance(part, STATE))}


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


def check_unchanged(
    algo: Algorithm, env: Env, before: Mapping[str, str] | None, first: Mapping[str, str] | None = None
) -> None:
    """Refuse state that was added after the run began, and unsaved attributes that have changed since.

    first: `before` of a run that was resumed. What is as it was then has not changed, such as a constant that the
    policy makes when it first acts: a new run measures the policy before it begins.
    """
    first = first or {}
    check_saved(algo, env)
    if before is None:
        return
    for key, x in named(algo, algo.saved).items():
        now = extent(x)
        if now not in (was := before.get(key, now), first.get(key)):
            raise UserError(
                f"{type(algo).__name__}.{key} was {was} when the run began and is {now} now, which could not be put "
                "back: let it be what it is from __init__ on"
            )
    then = fingerprints(algo, env)
    changed = [key for key in then if then[key] not in (before.get(key), first.get(key))]
    if mine := [key for key in changed if key.startswith(WORLD)]:
        kind, parent = type(env).__name__, next(base.__name__ for base in type(env).__mro__ if is_library(base))
        raise UserError(
            f"{', '.join(kind + key.removeprefix(WORLD) for key in mine)}: changed since the run began and would not "
            f"be saved: give {kind} a state_dict and a load_state_dict that add to those of {parent}"
        )
    check_modes(algo, changed)
    refuse(algo, dict.fromkeys(changed, "has changed since the run began"))


def check_modes(algo: Algorithm, changed: Iterable[str]) -> None:
    """Refuse modules that `train()` or `eval()` has left in another mode; those inside need no line of their own."""
    modes = [key.removesuffix("training") for key in changed if key.endswith(".training")]
    outer = [key for key in modes if not any(key != other and key.startswith(other) for other in modes)]
    if outer:
        told = ", ".join(f"{type(algo).__name__}.{key.rstrip('.')}" for key in outer)
        raise UserError(
            f"{told} went from .train() to .eval() or back since the run began, and the mode would not be saved: "
            "put it back where it is changed, or set it in __init__"
        )


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
    more = f", or in that module self.register_buffer({inside[0]!r}, TENSOR)" if inside else ""
    unheld = {key: x for key, x in unsaved(algo) if key in found and not can_be_saved(x)}
    if own := [key for key, x in unheld.items() if is_plain(x)]:
        more = f", and give {', '.join(own)} a state_dict and a load_state_dict"
    elif unheld:
        kinds = ", ".join(f"{key}, {attributes.named_kind(x)}" for key, x in unheld.items())
        more = f", and keep numbers, texts, tensors or lists of them in place of {kinds}, which no checkpoint can hold"
    raise UserError(f"{told} and would not be saved: write saved = {line} in {kind.__name__}{more}")


def fingerprints(algo: Algorithm, env: Env) -> dict[str, str]:
    """A fingerprint of each unsaved attribute of the algorithm and its parts; for saved attributes, their form."""
    known, named_in = in_saved(algo, env), partly(algo)
    found = {key: digest(x, known, named_in) for key, x in unsaved(algo) if id(x) not in known}
    found |= {f"{WORLD}.{key}": digest(x, known, named_in) for key, x in added_to_env(env).items()}
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
