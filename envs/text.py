"""A task of your own: a file with prompts, and a reward function."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch

from rlkit.api import Code, Place, UserError
from rlkit.fields import Words
from rlkit.prompts import QUESTION
from rlkit.text import Problem, TextEnv, splits
from rlkit.text.grader import BUILT_IN
from rlkit.text.rows import check_answers, tasks_from

from ._text import Grading, KindWeights, TextConfig, Weights, text_env

Source = Annotated[str, Place("file", beside=("test.jsonl",))]
ALLOWED = "PATH.jsonl, or a hub id owner/name"


@dataclass(frozen=True)
class Config(TextConfig):
    source: Source = ""  # PATH.jsonl of rows with `prompt` (test.jsonl beside it is the test split) | hub id owner/name
    reward: Code = ""  # functions as in env=gsm8k; empty: flexible, which compares with a row's `answer`
    reward_weights: Weights = ()  # weight of each reward, also in evaluation; empty: 1 each
    kind_weights: KindWeights = field(default_factory=dict)  # relative frequency of the rows of each `kind`
    prompt: Words = QUESTION  # text around a prompt, which is {question}; chat messages stay as they are


def make(config: Config, seed: int, device: str | torch.device) -> TextEnv:
    if not config.source:
        raise UserError(f"env=text needs env.source; allowed are {ALLOWED}")
    sizes = {"test": config.test, "validation": config.validation}
    problems, source = splits.load(config.source, tasks_from, sizes, ALLOWED)
    rows = [problem for found in problems.values() for problem in found]
    check(config, rows)
    names = [name.strip() for name in (config.reward or "flexible").split(",")]
    graders = [name for name in names if name in BUILT_IN]
    check_answers(rows, ",".join(names), config.source)
    check_answers([*problems["validation"], *problems["test"]], config.metrics, config.source, "env.metrics")
    # A score is 0 or 1 where one built-in reward gives it, and whatever the rewards say elsewhere.
    accuracy = names == graders[:1] and config.reward_weights in ((), (1.0,))
    chosen = replace(config, reward=",".join(names))
    grading = Grading("accuracy" if accuracy else "return")
    return text_env(chosen, problems, source, seed, device, grading=grading, weights=config.kind_weights)


def check(config: Config, rows: Sequence[Problem]) -> None:
    """Refuse keys that these rows leave nothing to do, and rows that nothing scores."""
    if not config.reward and not any(problem.answer for problem in rows):
        judged = "env.judge makes the pairs, and a reward measures the run; " if config.judge else ""
        called = [problem.columns["completion"] for problem in rows if problem.columns.get("completion")]  # as in TRL
        renamed = "call its 'completion' that, or " if called else ""
        if called and isinstance(called[0], list):
            renamed = "write the text of its 'completion' there, or "
        raise UserError(
            f"env.reward is missing, and no row of {config.source} has an 'answer' to compare with; {judged}{renamed}"
            "give env.reward=./mine.py:function"
        )
    if config.prompt != QUESTION and all(problem.turns for problem in rows):
        raise UserError("env.prompt does nothing: every prompt is a list of messages; leave it out")
    if config.system and all(problem.turns and problem.turns[0].role == "system" for problem in rows):
        raise UserError("env.system does nothing: every prompt begins with a system message of its own; leave it out")
    if config.shots and not all(problem.answer for problem in rows):
        raise UserError(f"env.shots={config.shots} shows rows with their answers: give every row an 'answer'")
