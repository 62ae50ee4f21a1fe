"""Reward functions with TRL's signature, f(prompts, completions, **columns) -> list[float | None]."""

import inspect
import math
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from rlkit import outside
from rlkit.errors import RewardFailed, UserError, one_line
from rlkit.paths import home
from rlkit.text.grader import correct

Reward = Callable[..., list[float | None]]  # ...: prompts, completions and whichever columns it names


@runtime_checkable
class PlacedReward(Protocol):
    """A reward function that computes on a device and has a longest text."""

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device) -> None:
        """Move to the device, and refuse prompts that are too long."""
        ...


BUILT_IN: dict[str, Reward] = {"correct": correct}


def load_rewards(names: str, learned: Callable[[str], Reward] | None = None) -> list[Reward]:
    """`correct`, `./mine.py:function`, `package.module:function`, `model:RUN_FOLDER`; commas sum several.

    `learned` reads the reward model of a run folder; without it `model:` is refused.
    """
    given = [name.strip() for name in names.split(",")]
    if twice := [name for name in given if given.count(name) > 1]:
        raise UserError(f"env.reward={names}: {twice[0]} is there twice; give each once")
    files: dict[Path, ModuleType] = {}  # two functions of a file share what it holds
    return [_load(name, learned, files) for name in given]


def _load(name: str, learned: Callable[[str], Reward] | None, files: dict[Path, ModuleType]) -> Reward:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if learned is not None and name.startswith("model:"):
        return learned(name.removeprefix("model:"))
    place, colon, function = name.rpartition(":")
    if not colon or not place or not function:
        allowed = f"{', '.join(BUILT_IN)}, model:RUN_FOLDER, PATH.py:FUNCTION or PACKAGE.MODULE:FUNCTION"
        raise UserError(f"env.reward={name!r} is not a reward function; allowed are {allowed}")
    found: Reward | None = getattr(_module(place, name, files), function, None)
    if not callable(found):
        raise UserError(
            f"env.reward={name!r}: {place} has no function {function!r}; define it there or correct the name"
        )
    return found


def _module(place: str, name: str, files: dict[Path, ModuleType]) -> ModuleType:
    if not place.endswith(".py"):
        try:
            if not all(part.isidentifier() for part in place.split(".")):
                raise ModuleNotFoundError(f"No module named '{place}'")  # such as a path
            return outside.import_module(place)
        except ModuleNotFoundError as error:
            raise UserError(f"env.reward={name!r}: {error}; give a .py file or a module that can be imported") from None
    path = Path(os.path.abspath(home(place)))
    if not os.path.isfile(path):  # False for what can be no path, such as a very long text
        raise UserError(f"env.reward={name!r}: there is no file {path}; give the path of a .py file that exists")
    path = path.resolve()
    if path not in files:
        files[path] = outside.load_file(path, reward=True)
    return files[path]


def total(
    functions: Sequence[Reward], prompts: list[str], completions: list[str], columns: Mapping[str, Sequence[object]]
) -> list[float]:
    """The sum of the rewards of each completion; a function that answers None has no opinion on that one."""
    sums: list[float | None] = [None] * len(completions)
    for function in functions:
        name = getattr(function, "__name__", str(function))
        _check_signature(function, name, columns)
        try:
            own = {key: list(column) for key, column in columns.items()}  # it may sort or change what it is given
            given = function(prompts=list(prompts), completions=list(completions), **own)
        except UserError:
            raise
        except Exception as error:  # whatever a function of the user's raises
            raise RewardFailed(f"reward {name} raised {_where(error)}") from error
        for row, value in enumerate(_listed(name, given, len(completions))):
            if value is not None:
                sums[row] = (sums[row] or 0.0) + _number(name, value)
    if None in sums:
        raise RewardFailed(
            "a completion got no reward: every reward function answered None; let one of them return a number"
        )
    return [value for value in sums if value is not None]


def _listed(name: str, given: Any, count: int) -> list[object]:  # Any: whatever a function of the user's returned
    """One value for each completion; an array or a tensor will do."""
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    if not listed and not (isinstance(given, np.ndarray | torch.Tensor) and given.ndim):
        found = f"a {type(given).__name__}"
    elif len(given) != count:
        found = f"{len(given)} rewards"
    else:
        return list(given)
    raise RewardFailed(f"reward {name} gave {found} for {count} completions; return a list with one for each")


def _where(error: Exception) -> str:
    """What was raised, and in which line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    words = one_line(error) or "nothing more"
    return f"{type(error).__name__}: {words} ({Path(last.filename).name}, line {last.lineno})"


def _check_signature(function: Reward, name: str, columns: Mapping[str, Sequence[object]]) -> None:
    try:
        inspect.signature(function).bind(prompts=[], completions=[], **columns)
    except TypeError as error:
        raise RewardFailed(
            f"reward {name} cannot be called with prompts, completions and {', '.join(columns)} ({error}); "
            f"write def {name}(prompts, completions, **columns)"
        ) from None


def _number(name: str, value: object) -> float:
    """The value as a finite number; what a user's function returns may be anything. One element of an array is one."""
    if isinstance(value, np.ndarray | torch.Tensor) and math.prod(value.shape) == 1:
        value = value.item()
    try:
        number = float(value) if isinstance(value, int | float | np.integer | np.floating | np.bool_) else math.nan
    except OverflowError:  # a whole number beyond all floats
        number = math.inf
    if not math.isfinite(number):
        shown = one_line(value, repr)
        raise RewardFailed(
            f"reward {name} gave {shown if len(shown) <= 80 else shown[:77] + '...'}; every reward must be a finite "
            "number or None"
        )
    return number
