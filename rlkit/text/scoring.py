"""Scores completions: the values of all reward functions, and their weighted sum."""

import inspect
import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain, count
from typing import TypeGuard

import numpy as np
import torch

from rlkit.api import Tokens
from rlkit.errors import RewardFailed
from rlkit.text.given import alike, called, listed, name_of, refuse_async, shown
from rlkit.text.problems import Problem
from rlkit.text.rewards import PlacedReward, ReadsPolicies, Reward

LARGEST = 1e18  # largest reward: the squares of rewards must fit into float32, for their deviation
ALLOWED = "a number from -1e18 to 1e18"
MUTABLE = (list, dict, set, deque, np.ndarray)  # kinds of columns that a function may change
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
Columns = Mapping[str, Sequence[object]]
Placed = list[tuple[int | None, float]]  # rewards, each with the end of its part of the text; None: of the whole text


@dataclass(frozen=True)
class Scored:
    """The rewards of N completions."""

    score: list[float]  # [N], the weighted sum of all rewards
    placed: list[Placed]  # [N], the weighted rewards with their positions; they sum to the score
    named: dict[str, list[float | None]]  # function → [N] rewards without weight; None: no opinion


class Rewards:
    """Reward functions and their weights.

    The score of a completion is Σ w_i · r_i over the functions that have an opinion on it. A function returns for each
    completion a number, None (no opinion), or a list with a number for each step of the reasoning (`steps`).
    """

    def __init__(self, functions: Sequence[Reward], weights: Sequence[float] = ()) -> None:
        self.functions, self.weights = list(functions), list(weights or [1.0] * len(functions))
        self.names = numbered(map(name_of, self.functions))

    def opinions(
        self, prompts: Sequence[str], completions: Sequence[str], columns: Columns
    ) -> dict[str, list[float | None]]:
        """The values of each function for N completions, by its name."""
        both = zip(self.functions, self.names, strict=True)
        given = {name: _opinions(function, name, prompts, completions, columns) for function, name in both}
        return {name: [_sum(opinion) for opinion in opinions] for name, opinions in given.items()}

    def check_columns(self, columns: Collection[str]) -> None:
        """Refuse functions that cannot be called with these columns. Raises: RewardFailed."""
        for function, name in zip(self.functions, self.names, strict=True):
            refuse_async(f"reward {name}", function)
            _check_signature(function, name, columns)

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device, tokens: Tokens) -> None:
        """Move models to the device, refuse prompts that are too long for them, and tell them whose texts they read."""
        for function in self.functions:
            if isinstance(function, PlacedReward):
                function.prepare(list(prompts), max_tokens, device)
            if isinstance(function, ReadsPolicies):
                function.read_texts_of(tokens)

    def __call__(self, prompts: Sequence[str], completions: Sequence[str], columns: Columns) -> Scored:
        """Score N completions; columns: further arguments of the functions, [N] each.

        Raises: RewardFailed where a function fails or returns an invalid reward, or all of them return None.
        """
        placed: list[Placed | None] = [None] * len(completions)
        named: dict[str, list[float | None]] = {}
        for function, weight, name in zip(self.functions, self.weights, self.names, strict=True):
            opinions = _opinions(function, name, prompts, completions, columns)
            named[name] = [_sum(opinion) for opinion in opinions]
            for row, opinion in enumerate(opinions):
                if opinion is not None:
                    placed[row] = (placed[row] or []) + [(end, weight * value) for end, value in opinion]
        if None in placed:
            raise RewardFailed(
                "a completion got no reward: every reward function answered None; let one of them return a number"
            )
        found = [each for each in placed if each is not None]
        score = [_sum(each) or 0.0 for each in found]
        if any(abs(each) > LARGEST for each in score):
            raise RewardFailed(
                f"the weighted rewards of a completion sum to more than {LARGEST:g}: give smaller weights"
            )
        return Scored(score, found, named)


def total(functions: Sequence[Reward], prompts: list[str], completions: list[str], columns: Columns) -> list[float]:
    """The sum of all rewards for each completion."""
    return Rewards(functions)(prompts, completions, columns).score


def columns_of(problems: Sequence[Problem]) -> dict[str, list[object]]:
    """The columns of some problems, by name; None where a problem lacks a column."""
    given = [problem.given() for problem in problems]
    return {key: [each.get(key) for each in given] for key in dict.fromkeys(key for each in given for key in each)}


def steps(text: str) -> list[str]:
    r"""The steps of a reasoning: its lines that are not empty. Only \n ends a line, unlike in `splitlines`."""
    return [line for line in text.split("\n") if line.strip()]


def ends_of_steps(text: str) -> list[int]:
    """The index after the last character of each of the `steps`, without trailing spaces."""
    ends, start = [], 0
    for line in text.split("\n"):
        if line.strip():
            ends.append(start + len(line.rstrip()))
        start += len(line) + 1
    return ends


def numbered(names: Iterable[str]) -> list[str]:
    """The names; repeated names get a number."""
    found: list[str] = []
    for name in names:
        others = (f"{name}_{i}" for i in count(2))
        found.append(next(other for other in chain([name], others) if other not in found))
    return found


def _sum(opinion: Placed | None) -> float | None:
    return None if opinion is None else sum((value for _, value in opinion), 0.0)


def _opinions(
    function: Reward, name: str, prompts: Sequence[str], completions: Sequence[str], columns: Columns
) -> list[Placed | None]:
    """The values of one function for all completions."""
    _check_signature(function, name, columns)
    own = {key: [_own(x) for x in column] for key, column in columns.items()}  # the function may change its arguments
    given = called(f"reward {name}", function, prompts=list(prompts), completions=list(completions), **own)
    values = listed(f"reward {name}", given, "rewards", len(completions), "completions")
    return [_opinion(name, value, text) for value, text in zip(values, completions, strict=True)]


def _own(value: object) -> object:
    return deepcopy(value) if isinstance(value, MUTABLE) else value


def _opinion(name: str, value: object, text: str) -> Placed | None:
    """The reward for one completion: None, a number, or a number for each of its steps."""
    if value is None:
        return None
    if not _several(value):
        return [(None, _number(name, value))]
    ends, numbers = ends_of_steps(text), list(value)
    if len(numbers) != len(ends):
        raise RewardFailed(
            f"reward {name} gave a list of {len(numbers)} for a completion of {len(ends)} steps (lines that are not "
            f"empty); every reward must be {ALLOWED} or None, or a list with a number for each step"
        )
    return [(end, _number(name, number)) for end, number in zip(ends, numbers, strict=True)]


def _several(value: object) -> TypeGuard[Iterable[object]]:
    """Whether a value is a list of numbers; an array with one element counts as a number."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.ndim > 0 and math.prod(value.shape) != 1
    return isinstance(value, list | tuple)


def _check_signature(function: Reward, name: str, columns: Collection[str]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # a compiled function has no signature, and says at its call what it does not take
        return
    try:
        signature.bind(prompts=[], completions=[], **dict.fromkeys(columns))
    except TypeError as error:
        asked = [key for key, each in signature.parameters.items() if each.default is each.empty and each.kind in NAMED]
        missing = [key for key in asked if key not in ("prompts", "completions", *columns)]
        near = alike(missing[0], columns) if missing else []
        hint = f": did you mean {near[0]}?" if near else f"; write def {name}(prompts, completions, **columns)"
        raise RewardFailed(
            f"reward {name} cannot be called with prompts, completions and {', '.join(columns)} ({error}){hint}"
        ) from None


def _number(name: str, value: object) -> float:
    """The value as a finite number; the user's function may return anything. An array of one element is a number."""
    if isinstance(value, np.ndarray | torch.Tensor) and math.prod(value.shape) == 1:
        value = value.item()
    try:
        number = float(value) if isinstance(value, int | float | np.integer | np.floating | np.bool_) else math.nan
    except Exception:  # an integer that no float can hold, or a class of the user's
        number = math.nan
    if not abs(number) <= LARGEST:  # also for nan
        raise RewardFailed(f"reward {name} gave {shown(value)}; every reward must be {ALLOWED} or None")
    return number
