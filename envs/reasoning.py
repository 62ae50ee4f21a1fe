"""Tasks of the package reasoning-gym, each with its own scorer; several at once with weights."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le

from rlkit.api import Count, UserError
from rlkit.errors import one_line
from rlkit.fields import Problems
from rlkit.text import Problem, TextEnv, reasoning, splits
from rlkit.text.grader import BUILT_IN, gradable
from rlkit.text.mixture import check_weights

from ._text import OWN, PLAYED, Graded, Grading, TextConfig, text_env

Size = Annotated[int, Ge(1), Le(100_000)]


@dataclass(frozen=True)
class Config(TextConfig):
    task: tuple[str, ...] = ()  # a task of reasoning-gym by name; commas between several
    task_weights: Annotated[tuple[float, ...], PLAYED] = ()  # relative frequency of each task: [2,1]; empty: equal
    task_options: dict[str, Any] = field(
        default_factory=dict
    )  # options of the task; of several {task: {option: value}}
    max_tokens: Count = 128  # longest completion
    reward: Graded = OWN  # own: the task's scorer; or functions as in env=gsm8k; commas sum several
    train: Size = 2000  # problems of each task in the train split
    validation: Problems = 128  # problems of each task in the validation split
    test: Problems = 256  # problems of each task in the test split


def make(config: Config, seed: int, device: str | torch.device) -> TextEnv:
    check_stops(config.stop)
    options = options_of(config)
    sizes = {"train": config.train, "validation": config.validation, "test": config.test}
    found = [reasoning.problems(task, chosen, sizes) for task, chosen in options.items()]
    problems = {split: reasoning.interleaved([each[split] for each in found]) for split in sizes}
    for row in problems["train"]:
        if config.shots and not row.answer:
            raise UserError(
                f"env.shots={config.shots} shows answers, and {row.kind} has several right ones: leave it out"
            )
    check_graders("reward", config.reward, [row for found in problems.values() for row in found])
    check_graders("metrics", config.metrics, [*problems["validation"], *problems["test"]])
    scorers = tuple(reasoning.scorer(task, chosen) for task, chosen in options.items())
    weights = dict(zip(config.task, config.task_weights or [1.0] * len(config.task), strict=True))
    return text_env(
        config,
        problems,
        f"reasoning-gym: {', '.join(options)} ({splits.counted(problems)})",
        seed,
        device,
        grading=Grading(scorers=scorers, beside=(reasoning.solver(options),), packages=("reasoning-gym",)),
        weights=weights if len(weights) > 1 else {},
    )


def check_stops(stops: Sequence[str]) -> None:
    """Refuse a stop string that takes away </answer>: the scorer would read all of the text in its place."""
    for stop in stops:
        if stop.lstrip().startswith(reasoning.CLOSE.rstrip(">")):
            raise UserError(
                f"env.stop={one_line(stop)}: the scorer does not see a stop string, and looks for {reasoning.CLOSE}; "
                "leave it out, as the last answer of a text counts"
            )


def check_graders(key: str, names: str, rows: Sequence[Problem]) -> None:
    """Refuse a built-in reward that cannot compare with an answer: every text would be wrong."""
    for name in [name.strip() for name in names.split(",") if name.strip() in BUILT_IN]:
        for row in rows:
            if not gradable(name, row.answer):
                right = repr(one_line(row.answer)[:40]) if row.answer else "one of several texts"
                raise UserError(
                    f"env.{key}={names}: {name} cannot compare with a right answer of {row.kind}, which is {right}: "
                    f"give the task's own scorer (env.reward={OWN}), or a function of your own"
                )


def options_of(config: Config) -> dict[str, Mapping[str, object]]:
    """The tasks and the options of each, checked."""
    known = reasoning.tasks()
    if not config.task:
        raise UserError(f"env=reasoning needs env.task, the name of a task; {meant('', known)}")
    for at, task in enumerate(config.task):
        if task not in known:
            raise UserError(f"env.task={task!r} is not a task of reasoning-gym: {meant(task, known)}")
        if task in config.task[:at]:
            raise UserError(f"env.task has {task} twice; give each once, and env.task_weights to draw it more often")
    if len(config.task_weights) not in (0, len(config.task)):
        raise UserError(
            f"env.task_weights has {len(config.task_weights)} numbers and env.task {len(config.task)} tasks: give one "
            "number for each"
        )
    if len(config.task) == 1 and config.task_weights:
        raise UserError("env.task_weights does nothing with one task: leave it out, or give several tasks")
    check_weights(config.task_weights)
    chosen = by_task(config)
    for task in config.task:
        reasoning.check_options(task, chosen[task])
    return chosen


def meant(task: str, known: list[str]) -> str:
    """What might have been meant, and how many there are."""
    if close := difflib.get_close_matches(task, known, 3, 0.6):
        return f"did you mean {' or '.join(close)}? There are {len(known)}"
    return f"there are {len(known)}: {', '.join(known)}"


def by_task(config: Config) -> dict[str, Mapping[str, object]]:
    """The options of each task."""
    if len(config.task) == 1 and not isinstance(config.task_options.get(config.task[0]), dict):
        return {config.task[0]: config.task_options}
    for task, options in config.task_options.items():
        if task not in config.task or not isinstance(options, dict):
            raise UserError(
                f"env.task_options has {task!r}: with several tasks it names each with its options, as in "
                f"{{{config.task[0]}: {{OPTION: VALUE}}}}"
            )
    return {task: config.task_options.get(task, {}) for task in config.task}
