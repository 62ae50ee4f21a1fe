"""Loads reward functions. Their signature is TRL's: f(prompts, completions, **columns) -> list."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Protocol, runtime_checkable

import torch

from rlkit import outside
from rlkit.api import Tokens
from rlkit.errors import UserError
from rlkit.named import Load, named
from rlkit.text.grader import BUILT_IN
from rlkit.text.symbolic import check_installed

# Called with prompts, completions and the columns that it names; returns a number, None or a list of numbers for each.
Reward = Callable[..., Sequence[float | Sequence[float] | None]]


@runtime_checkable
class PlacedReward(Protocol):
    """A reward function that computes on a device and limits the length of texts."""

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device) -> None:
        """Move to the device, and refuse prompts that are too long for it."""
        ...


@runtime_checkable
class ReadsPolicies(Protocol):
    """A reward function that has to know how the texts that it reads were decoded."""

    def read_texts_of(self, tokens: Tokens) -> None:
        """The texts to come are those of a policy with this tokenizer."""
        ...


def load_rewards(names: str, learned: Callable[[str], Reward] | None = None, key: str = "env.reward") -> list[Reward]:
    """Load `correct`, `./mine.py:function`, `package.module:function`, `model:RUN_FOLDER`; commas separate several.

    `learned` loads the reward model of a run folder; without it `model:` is refused. key: the key that gave the names.
    """
    given = [name.strip() for name in names.split(",")]
    if twice := [name for name in given if given.count(name) > 1]:
        raise UserError(f"{key}={names}: {twice[0]} is there twice; give each once")
    load = cache(partial(outside.load_file, reward=True))  # two functions of one file share its module
    return [_load(name, learned, key, load) for name in given]


def _load(name: str, learned: Callable[[str], Reward] | None, key: str, load: Load) -> Reward:
    if name == "math":
        check_installed()
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name.startswith("model:"):
        if learned is None:
            raise UserError(f"{key}={name!r}: a run loads it; give env.reward={name} on its command line")
        return learned(name.removeprefix("model:"))
    return named(key, name, f"{', '.join(BUILT_IN)}, model:RUN_FOLDER, ", load)
