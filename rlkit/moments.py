"""The optimizers of an algorithm, and what they keep: whether a restored state fits; and which parameters learn."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rlkit.attributes import FLAT, NUMBER, check_numbers, form, is_number

LARGEST = 1e80  # largest number in an optimizer: products of two keys, each at most 1e37
KERNELS = ("foreach", "fused")  # options that may be None again: torch chooses
SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "step")  # values of an optimizer that are never negative
MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "grad_avg", "momentum_buffer")  # one per element
NEEDED = {torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"), torch.optim.RMSprop: ("step", "square_avg")}
TORCHS = ("state", "param_groups", "defaults")  # attributes of an optimizer that torch fills with many small things
FLAGS = ("amsgrad", "centered", "maximize", "nesterov")  # options of an optimizer that never change


def optimizers(holder: object) -> list[Optimizer]:
    """All optimizers that an algorithm holds, each once: it may step some of them itself.

    They may stand in collections, in its own objects with a state_dict, and inside other optimizers, as in SAM.
    """
    found: list[Optimizer] = []
    waiting = _attributes(holder)
    seen: dict[int, object] = {}
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, Optimizer):
            found.append(item)
        if isinstance(item, dict | list | tuple):
            inner = item.values() if isinstance(item, dict) else item
            waiting += [x for x in inner if type(x) not in FLAT]
        elif hasattr(item, "load_state_dict") and hasattr(item, "__dict__"):
            waiting += _attributes(item)
    return found


def _attributes(x: object) -> list[object]:
    is_optimizer = isinstance(x, Optimizer)
    return [held for key, held in vars(x).items() if not (is_optimizer and key in TORCHS)]


def options_of(x: object) -> list[dict[str, object]]:
    """What an optimizer has in each of its groups beside the parameters; empty for anything else."""
    if not isinstance(x, Optimizer):
        return []
    return [{key: value for key, value in group.items() if key != "params"} for group in x.param_groups]


def _flags(options: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    return [{key: group[key] for key in FLAGS if key in group} for group in options]


def of_library(optimizer: Optimizer) -> bool:
    """Whether its class is of torch or rlkit; one of the user's own keeps what it likes, in any shape and type."""
    return type(optimizer).__module__.startswith(("torch.", "rlkit."))


def takes_hooks(optimizer: Optimizer, of: str = "step") -> bool:
    """Whether torch can add hooks to it; one that wraps another may have none, or a plain dict."""
    return isinstance(vars(optimizer).get(f"_optimizer_{of}_pre_hooks"), OrderedDict)


def check_optimizer(optimizer: Optimizer, made: Sequence[Mapping[str, object]]) -> None:
    """Raises: ValueError where the state of an optimizer does not fit its parameters, or its options differ.

    A class of the user's own counts its steps, and notes things in its groups, as it likes.

    made: result of `options_of` before its state was restored.
    """
    if not isinstance(optimizer, torch.optim.Adam | torch.optim.SGD | torch.optim.RMSprop):  # AdamW is an Adam
        return
    ours = of_library(optimizer)
    for parameter, state in optimizer.state.items():
        if ours or (isinstance(parameter, Tensor) and isinstance(state, dict)):
            _check_moments(optimizer, parameter, state, ours)
    if (now := _flags(optimizer.param_groups)) != _flags(made):
        raise ValueError(f"it computes {now}, not {_flags(made)}")
    for group, first in zip(optimizer.param_groups, made, strict=True) if ours else ():
        _check_options(group, {key: first.get(key, default) for key, default in optimizer.defaults.items()})


def _check_moments(optimizer: Optimizer, parameter: Tensor, state: Mapping[str, object], ours: bool) -> None:
    """Refuse a state that lacks what torch's kernels trust, or holds something else in place of a tensor.

    Raises: KeyError, TypeError or ValueError.
    """
    for kind, needed in NEEDED.items() if ours and state else ():
        if isinstance(optimizer, kind) and (missing := [key for key in needed if key not in state]):
            raise KeyError(missing[0])
    for key, x in state.items():
        whole = key in MOMENTS
        if not (ours or whole):
            continue
        if not isinstance(x, Tensor):
            if key == "step" or (whole and not (x is None and key == "momentum_buffer")):
                raise TypeError(f"{key} is {form(x)}")
            continue
        if key == "step" and not (x.numel() == 1 and x.is_floating_point()):
            raise ValueError(f"{key} is {form(x)}")
        if (whole or x.dim() > 0) and x.shape != parameter.shape:
            raise ValueError(f"{key} has the shape {tuple(x.shape)}, not {tuple(parameter.shape)}")
        if not bool(x.isfinite().all()):
            raise ValueError(f"{key} is not finite")
        if key in SQUARES and bool((x < 0).any()):
            raise ValueError(f"{key} is negative")


def _check_options(group: Mapping[str, object], made: Mapping[str, object]) -> None:
    """Refuse options of one group of other types than it was made with. Raises: TypeError or ValueError."""
    for key, first in {"initial_lr": 0.0, **made}.items():  # a user's own keys may hold anything
        given = group.get(key, first if key == "initial_lr" else None)
        if given is None and key in KERNELS and key in group:
            continue
        if isinstance(first, tuple | list):
            if not isinstance(given, tuple | list) or len(given) != len(first):
                raise TypeError(f"{key} is {given!r}")
            check_numbers(given)
        elif type(given) is not type(first) and not _is_kind(given, first):
            raise TypeError(f"{key} is {given!r}")
        low = -LARGEST if key == "dampening" else 0
        for x, old in zip(_each(given), _each(first), strict=True):
            if isinstance(x, SupportsFloat) and not (low <= float(x) < LARGEST or x == old):
                raise ValueError(f"a number of it is {x}")


def _is_kind(given: object, first: object) -> bool:
    """Whether it can stand in place of an option: a number or a flag where none was given, else a number."""
    if isinstance(given, bool):
        return first is None
    one, other = ((isinstance(x, Tensor) and x.numel() == 1) or is_number(x) for x in (given, first))
    return one and (other or first is None) and not isinstance(first, bool)


def _each(option: object) -> Sequence[object]:
    return option if isinstance(option, tuple | list) else (option,)


def is_scalar(key: str, x: object) -> bool:
    """Whether it is one number of an optimizer for a whole parameter: its steps, or a product as NAdam's."""
    return key == "step" or (isinstance(x, Tensor) and not x.dim() and x.is_floating_point() and key not in MOMENTS)


@contextmanager
def types_kept(part: object) -> Iterator[None]:
    """While it is open, what torch restores of optimizers keeps the types in which it was saved.

    torch gives it the type of the parameter. NAdam and ASGD keep numbers in float32 for any, and an own optimizer may
    keep its moments so. part: an optimizer, or what holds some.
    """
    inner = optimizers(part) if hasattr(part, "__dict__") else []
    with ExitStack() as stack:
        for x in (part, *inner) if isinstance(part, Optimizer) else inner:
            if takes_hooks(x, "load_state_dict"):
                saved: dict[str, Any] = {}
                note, put = partial(_note, saved), partial(put_types, saved=saved)
                stack.callback(x.register_load_state_dict_pre_hook(note).remove)
                stack.callback(x.register_load_state_dict_post_hook(put, prepend=True).remove)  # its own may convert
        yield


def _note(saved: dict[str, Any], _: Optimizer, state: dict[str, Any]) -> None:
    saved.update(state)


def put_types(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Give what torch has restored of an optimizer the types in which it was saved."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    own = not of_library(optimizer)
    for number, p in zip(numbers, parameters, strict=True):
        if number in saved["state"] and p in optimizer.state:
            optimizer.state[p] = _typed(optimizer.state[p], saved["state"][number], p.dtype, own)


def _typed(now: Any, saved: object, cast: torch.dtype, own: bool) -> Any:
    """What torch has cast, in its own type; what the optimizer itself has made of it since, stays.

    own: it is of a class of the user's. Where that inherits Adam, torch makes tensors of numbers.
    """
    if isinstance(now, Tensor) and isinstance(saved, Tensor):
        made = (cast, torch.float32) if own and not saved.dim() else (cast,)  # by torch, of steps of fused kernels
        return saved.to(now.device, copy=True) if saved.dtype != now.dtype and now.dtype in made else now
    if isinstance(now, str) and isinstance(saved, str):  # torch takes a text for a collection
        return saved
    if own and isinstance(now, Tensor) and isinstance(saved, NUMBER):
        return saved
    if isinstance(now, dict) and isinstance(saved, dict):
        now |= {key: _typed(now[key], x, cast, own) for key, x in saved.items() if key in now}
    elif isinstance(saved, list | tuple) and type(now) is type(saved) in (list, tuple) and len(now) == len(saved):
        return type(saved)([_typed(x, y, cast, own) for x, y in zip(now, saved, strict=True)])
    return now


def shared_groups(found: Iterable[object]) -> Callable[[], None]:
    """Note which optimizers share parameter groups, as SAM and its base do; returns what lets them share again.

    torch puts new groups into each whose state it restores, and a schedule then reaches only one of them. Optimizers
    inside optimizers count, too.
    """
    outer = [x for x in found if isinstance(x, Optimizer)]
    everyone = {id(y): y for x in outer for y in (x, *optimizers(x))}.values()
    before = [(x, x.param_groups, [*x.param_groups]) for x in everyone]

    def share() -> None:
        for i, one in enumerate(before):
            for two in before[i + 1 :]:
                restored = [x.param_groups is not groups for x, groups, _ in (one, two)]
                (new, groups, was), (old, others, had) = (two, one) if restored == [False, True] else (one, two)
                if groups is others and old.param_groups is not new.param_groups:  # it may be a property of old
                    old.param_groups = new.param_groups
                for a, b in ((a, b) for a, x in enumerate(was) for b, y in enumerate(had) if x is y):
                    old.param_groups[b] = new.param_groups[a]

    return share


def parameters_in(x: nn.Module | Tensor) -> dict[str, Tensor]:
    """The parameters of a module by name; a tensor by itself has none."""
    return dict(x.named_parameters()) if isinstance(x, nn.Module) else {"": x}


def frozen_in(x: nn.Module | Tensor) -> list[str]:
    """The names of parameters that do not learn."""
    return [name for name, p in parameters_in(x).items() if not p.requires_grad]


def freeze(x: nn.Module | Tensor, names: Iterable[str]) -> None:
    """Let the parameters of these names not learn, and all others learn. Raises: ValueError where it lacks one."""
    frozen, parameters = set(names), parameters_in(x)
    if unknown := frozen - parameters.keys():
        raise ValueError(f"it has no parameter {min(unknown)!r}")
    for name, p in parameters.items():
        p.requires_grad_(name not in frozen)
