"""Asks the package reasoning-gym, in the process of `rlkit.text.process`: its tasks, their questions, their scores.

It is a process of its own because it takes seconds to import, draws from the global generators, and its scorers
read what a model wrote. Where they would run that as Python, it is read as a literal or as plain mathematics here.
"""

import ast
import random
import re
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import sympy
from reasoning_gym.factory import DATASETS, create_dataset

OWN = ("seed", "size")  # options that splits set
# Words that an expression may hold beside single letters: whatever else sympy knows may be any Python.
WORDS = {
    "exp",
    "log",
    "ln",
    "sqrt",
    "pi",
    "Abs",
    "abs",
    "sin",
    "cos",
    "tan",
    "cot",
    "sec",
    "csc",
    "sinh",
    "cosh",
    "tanh",
}
WORDS |= {f"a{word}" for word in WORDS}
EVALUATING = ("bitwise_arithmetic", "basic_arithmetic", "generators_00_49", "generators_50_99")  # their own problems

_datasets: dict[str, Any] = {}  # Any: the package has no types
_entries: dict[tuple[str, int], Any] = {}
_parse = sympy.parse_expr


def names() -> list[str]:
    """The tasks; `composite` is a mixture of them and none itself."""
    return sorted(DATASETS.keys() - {"composite"})


def options(task: str) -> dict[str, str]:
    """The options of a task with their usual values, but for those that splits set."""
    config = DATASETS[task][1]
    usual = config()
    return {field.name: repr(getattr(usual, field.name)) for field in fields(config) if field.name not in OWN}


def entry(task: str, chosen: dict[str, Any], seed: int, size: int, index: int) -> tuple[str, str]:
    """The question of a number, and its right answer; empty where the task has none of one text."""
    found = _entry(task, chosen, seed, size, index)[1]
    return found["question"], found["answer"] if isinstance(found["answer"], str) else ""


def score(task: str, chosen: dict[str, Any], seed: int, size: int, index: int, given: str) -> object:
    """What the task's own scorer gives to an answer."""
    dataset, found = _entry(task, chosen, seed, size, index)
    value = dataset.score_answer(given, found)
    return float(value) if isinstance(value, int | float | np.number | np.bool_) else repr(value)


def _entry(task: str, chosen: dict[str, Any], seed: int, size: int, index: int) -> tuple[Any, Any]:
    """The data set, and one of its entries: the same for the same numbers, in whatever order they are asked for."""
    name = repr((task, sorted(chosen.items()), seed, size))
    if name not in _datasets:
        _seed(seed)
        _datasets[name] = create_dataset(task, seed=seed, size=size, **chosen)
    if (name, index) not in _entries:
        _seed(seed + index)  # a few tasks draw from the global generators, too
        _entries[name, index] = _datasets[name][index]
    return _datasets[name], _entries[name, index]


def _seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number % 2**32)


def plain(text: object, *others: Any, **more: Any) -> Any:
    """`sympy.parse_expr` of what can be nothing but mathematics: numbers, letters, the functions of WORDS."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9_\s+*/^().,=|-]*", text):
        raise ValueError("not an expression")
    words = re.findall(r"[A-Za-z_]\w*", text)
    if any(len(word) > 1 and word not in WORDS for word in words) or re.search(r"\.\s*[A-Za-z_]", text):
        raise ValueError("not an expression")
    return _parse(text, *others, **more)


def _guard() -> None:
    """Let no scorer run a text as Python."""
    sympy.parse_expr = plain
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym."):
            if vars(module).get("parse_expr") is _parse:
                vars(module)["parse_expr"] = plain
            if not name.endswith(EVALUATING):
                vars(module)["eval"] = ast.literal_eval


_guard()
ANSWERS = {each.__name__: each for each in (names, options, entry, score)}


def answer(question: list[Any]) -> object:
    """What the function of that name gives."""
    return ANSWERS[question[0]](*question[1:])
