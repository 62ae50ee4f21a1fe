"""The tasks of the package reasoning-gym: problems by seed, and the scorer of each task as a reward.

The scored answer is the content of the last <answer></answer> of a text, else of its last \\boxed{}, else the text
after its last `####`, else all of it, without surrounding whitespace.
"""

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rlkit.errors import RewardFailed, UserError, one_line
from rlkit.terminal import warn
from rlkit.text.problems import MARKER, Problem
from rlkit.text.process import Failed, Process
from rlkit.text.reading import boxed
from rlkit.text.rewards import Reward

INSTALL = "pip install -c constraints.txt -e '.[reasoning]'"
CHILD = Path(__file__).with_name("reasoning_process.py")
# Seeds differ by much, as most tasks draw problem i with seed + i. They do not depend on the seed of a run.
SEEDS = {"train": 0, "validation": 10_000_000, "test": 20_000_000}
MAKING, SCORING = 120.0, 3.0  # seconds of processor time for one problem, and for one score
ROUNDING = 1e-9  # tolerance: sums of partial scores may be 1.0000000000000002
TELL = 10.0  # seconds until a message says that making problems takes long
OPEN, CLOSE = "<answer>", "</answer>"
Options = Mapping[str, object]

# A set of words has one order in every process. Its assertions check options, which it evaluates: none may be left out.
SAME = {"PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": "", "OMP_NUM_THREADS": "1"}
PROCESS = Process(CHILD, "env=reasoning", "reasoning-gym", INSTALL, SAME)
_scores: dict[str, float] = {}  # by the question
_told: set[str] = set()


def tasks() -> list[str]:
    """The names of all tasks.

    Raises: UserError with the command to install the package where it is missing.
    """
    if find_spec("reasoning_gym") is None:
        raise UserError(f"env=reasoning needs the package reasoning-gym: {INSTALL}")
    return list(_ask(["names"], MAKING))


def check_options(task: str, options: Options) -> None:
    """Refuse unknown options of a task, and values that it does not accept."""
    usual = _ask(["options", task], MAKING)
    # A foreign config.yaml could read any file.
    if files := [name for name in map(str, options) if name.endswith("_file")]:
        raise UserError(f"env.task_options: {files[0]} names a file, which no option may: leave it out")
    for name in options:
        if name not in usual:
            there = ", ".join(f"{key}={value}" for key, value in usual.items()) or "none"
            raise UserError(f"env.task_options: {task} has no option {one_line(name)!r}; its options are: {there}")
    try:
        _ask(["entry", task, options, 0, 1, 0], MAKING)
    except Failed as error:
        raise UserError(
            f"env.task_options: {task} does not take {one_line(dict(options))} ({one_line(error)}); give other values"
        ) from None


def problems(task: str, options: Options, sizes: Mapping[str, int]) -> dict[str, list[Problem]]:
    """The splits of a task; held-out questions are not in the train split, and each question appears once.

    sizes: train, validation and test, in this order. Held-out splits are smaller where a task has few questions.
    """
    began, seen, told = time.monotonic(), set[str](), False
    found: dict[str, list[Problem]] = {}
    for split, count in sizes.items():
        held_out, size = split != "train", count if split == "train" else 2 * count
        rows: list[Problem] = []
        for index in range(size):
            if len(rows) == count:
                break
            if not told and time.monotonic() - began > TELL:
                told = True
                made = sum(map(len, found.values())) + len(rows)
                warn(
                    f"{task}: made {made:,} of {sum(sizes.values()):,} problems; it is slow, and env.train=N asks less"
                )
            row = _problem(task, options, SEEDS[split], size, index)
            if not (held_out and row.question in seen):
                rows.append(row)
            if held_out:
                seen.add(row.question)
        seen |= {row.question for row in rows}
        found[split] = rows
    return found


def _problem(task: str, options: Options, seed: int, size: int, index: int) -> Problem:
    try:
        question, answer = _ask(["entry", task, options, seed, size, index], MAKING)
    except Failed as error:
        raise UserError(f"{task}: problem {index} cannot be made ({one_line(error)}); give other options") from None
    return Problem(question, answer, task, {"entry": [seed, size, index]})


def interleaved(splits: Sequence[Sequence[Problem]]) -> list[Problem]:
    """Problems of all splits in turn, so that the first N come from all of them."""
    return [row for rows in zip_longest(*splits) for row in rows if row is not None]


def scorer(task: str, options: Options) -> Reward:
    """The task's own scorer as a reward with the task's name; None for problems of other tasks."""

    def reward(
        prompts: Sequence[str],
        completions: Sequence[str],
        kind: Sequence[str],
        entry: Sequence[list[int]],
        **columns: Any,
    ) -> list[float | None]:
        rows = zip(completions, kind, entry, strict=True)
        return [score(task, options, place, text) if each == task else None for text, each, place in rows]

    reward.__name__ = task
    return reward


def solver(options: Mapping[str, Options]) -> Reward:
    """The metric `solved`: 1 if the task's own scorer gives 1, else 0; options: of each task."""

    def solved(
        prompts: Sequence[str],
        completions: Sequence[str],
        kind: Sequence[str],
        entry: Sequence[list[int]],
        **columns: Any,
    ) -> list[float]:
        rows = zip(completions, kind, entry, strict=True)
        return [float(score(task, options[task], place, text) == 1) for text, task, place in rows]

    return solved


def score(task: str, options: Options, place: Sequence[int], text: str) -> float:
    """The score of a text by the task's own scorer; 0 where it raises, or exceeds its time or memory.

    Raises: RewardFailed where it returns anything but a number from 0 to 1.
    """
    question = ["score", task, options, *place, answer_of(text)]
    key = repr(question)
    if key not in _scores:
        if len(_scores) > 100_000:
            _scores.clear()
        _scores[key] = _score(task, question)
    return _scores[key]


def _score(task: str, question: list[object]) -> float:
    try:
        value = _ask(question, SCORING)
    except Failed as error:
        if task not in _told:
            _told.add(task)
            warn(f"{task}: its scorer gave nothing for an answer ({one_line(error)}): such answers score 0")
        return 0.0
    if not isinstance(value, float) or not -ROUNDING <= value <= 1 + ROUNDING:
        raise RewardFailed(f"reward {task} gave {one_line(value)}; the scorer of a task must give a number from 0 to 1")
    return min(max(value, 0.0), 1.0)


def answer_of(text: str) -> str:
    """The answer that a text gives."""
    start = text.rfind(OPEN, 0, max(text.rfind(CLOSE), 0))
    if start >= 0:
        return text[start + len(OPEN) : text.find(CLOSE, start)].strip()
    if (inside := boxed(text)) is not None:
        return inside.strip()
    return text.rpartition(MARKER)[2].strip()


def _ask(question: list[Any], seconds: float) -> Any:  # Any: JSON
    return PROCESS.ask(question, seconds)
