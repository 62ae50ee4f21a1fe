"""The child process for the package reasoning-gym: it makes questions and scores answers.

It is a separate process because the package takes seconds to import and draws from the global generators, and because
its scorers read text of a model. A scorer may not run it as Python: it is parsed here as a literal or as mathematics.
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

OWN = ("seed", "size")  # options that are set by splits
# Names allowed in an expression beside single letters: other names of sympy could run any Python code.
WORDS = {"exp", "log", "ln", "sqrt", "pi", "Abs", "abs"}
WORDS |= {"sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh"}
WORDS |= {f"a{word}" for word in WORDS}
EVALUATING = ("bitwise_arithmetic", "basic_arithmetic", "generators_00_49", "generators_50_99")  # their own problems

_datasets: dict[str, Any] = {}  # Any: the package has no types
_entries: dict[tuple[str, int], Any] = {}
_parse = sympy.parse_expr


def names() -> list[str]:
    """The tasks; `composite` is a mixture of tasks and is left out."""
    return sorted(DATASETS.keys() - {"composite"})


def options(task: str) -> dict[str, str]:
    """The options of a task with their default values, except those set by splits."""
    config = DATASETS[task][1]
    usual = config()
    return {field.name: repr(getattr(usual, field.name)) for field in fields(config) if field.name not in OWN}


def entry(task: str, chosen: dict[str, Any], seed: int, size: int, index: int) -> tuple[str, str]:
    """The question with this index, and its right answer; empty where there is no single right text."""
    found = _entry(task, chosen, seed, size, index)[1]
    return found["question"], found["answer"] if isinstance(found["answer"], str) else ""


def score(task: str, chosen: dict[str, Any], seed: int, size: int, index: int, given: str) -> object:
    """The score of an answer by the task's own scorer."""
    dataset, found = _entry(task, chosen, seed, size, index)
    value = dataset.score_answer(given, found)
    return float(value) if isinstance(value, int | float | np.number | np.bool_) else repr(value)


def _entry(task: str, chosen: dict[str, Any], seed: int, size: int, index: int) -> tuple[Any, Any]:
    """The dataset and one of its entries; it depends only on the arguments, not on the order of calls."""
    name = repr((task, sorted(chosen.items()), seed, size))
    if name not in _datasets:
        _seed(seed)
        _datasets[name] = create_dataset(task, seed=seed, size=size, **chosen)
    if (name, index) not in _entries:
        _seed(seed + index)  # a few tasks also draw from the global generators
        _entries[name, index] = _datasets[name][index]
    return _datasets[name], _entries[name, index]


def _seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number % 2**32)


def plain(text: object, *others: Any, **more: Any) -> Any:
    """`sympy.parse_expr` for texts that can only be mathematics: numbers, letters, functions in WORDS."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9_\s+*/^().,=|-]*", text):
        raise ValueError("not an expression")
    words = re.findall(r"[A-Za-z_]\w*", text)
    if any(len(word) > 1 and word not in WORDS for word in words) or re.search(r"\.\s*[A-Za-z_]", text):
        raise ValueError("not an expression")
    return _parse(text, *others, **more)


def _guard() -> None:
    """Prevent scorers from running text as Python."""
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
    """The result of the function with that name."""
    return ANSWERS[question[0]](*question[1:])
