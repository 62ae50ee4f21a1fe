"""Where reward functions come from; their signature is TRL's, f(prompts, completions, **columns) -> list."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

import torch

from rlkit import outside
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.text.grader import BUILT_IN
from rlkit.text.symbolic import check_installed

# Called with prompts, completions and whichever columns it names; one number, None, or a list of numbers for each.
Reward = Callable[..., Sequence[float | Sequence[float] | None]]


@runtime_checkable
class PlacedReward(Protocol):
    """A reward function that computes on a device and has a longest text."""

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device) -> None:
        """Move to the device, and refuse prompts that are too long."""
        ...


def load_rewards(names: str, learned: Callable[[str], Reward] | None = None, key: str = "env.reward") -> list[Reward]:
    """`correct`, `./mine.py:function`, `package.module:function`, `model:RUN_FOLDER`; commas sum several.

    `learned` reads the reward model of a run folder; without it `model:` is refused. key: where the names are from.
    """
    given = [name.strip() for name in names.split(",")]
    if twice := [name for name in given if given.count(name) > 1]:
        raise UserError(f"{key}={names}: {twice[0]} is there twice; give each once")
    files: dict[Path, ModuleType] = {}  # two functions of a file share what it holds
    return [_load(name, learned, files, key) for name in given]


def _load(name: str, learned: Callable[[str], Reward] | None, files: dict[Path, ModuleType], key: str) -> Reward:
    if name == "math":
        check_installed()
    if name in BUILT_IN:
        return BUILT_IN[name]
    if learned is not None and name.startswith("model:"):
        return learned(name.removeprefix("model:"))
    place, colon, function = name.rpartition(":")
    if not colon or not place or not function:
        allowed = f"{', '.join(BUILT_IN)}, model:RUN_FOLDER, PATH.py:FUNCTION or PACKAGE.MODULE:FUNCTION"
        raise UserError(f"{key}={name!r} is not a reward function; allowed are {allowed}")
    found: Reward | None = getattr(_module(place, name, files, key), function, None)
    if not callable(found):
        raise UserError(f"{key}={name!r}: {place} has no function {function!r}; define it there or correct the name")
    return found


def _module(place: str, name: str, files: dict[Path, ModuleType], key: str) -> ModuleType:
    if not place.endswith(".py"):
        try:
            if not all(part.isidentifier() for part in place.split(".")):
                raise ModuleNotFoundError(f"No module named '{place}'")  # such as a path
            return outside.import_module(place)
        except ModuleNotFoundError as error:
            raise UserError(f"{key}={name!r}: {error}; give a .py file or a module that can be imported") from None
    path = Path(os.path.abspath(home(place)))
    if not os.path.isfile(path):  # False for what can be no path, such as a very long text
        raise UserError(f"{key}={name!r}: there is no file {path}; give the path of a .py file that exists")
    path = path.resolve()
    if path not in files:
        files[path] = outside.load_file(path, reward=True)
    return files[path]
