"""Grade-school word problems: embedded ones (the default), a JSONL file in GSM8K's format, or a hub dataset."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from annotated_types import Ge, Le

from rlkit.api import Count, Fraction, Place, UserError
from rlkit.fields import DEMONSTRATIONS, Needs, Problems
from rlkit.paths import home
from rlkit.terminal import warn
from rlkit.text import TextEnv
from rlkit.text.problems import MARKER, Problem, demonstrations, embedded
from rlkit.text.sources import check_no_folder, hold_out, hub_rows, is_hub_id, problems_from, read_jsonl

from ._text import TextConfig, text_env

Size = Annotated[int, Ge(1), Le(100_000)]
Source = Annotated[str, Place("file", words=("embedded",), beside=("test.jsonl",))]
EMBEDDED, SHOWN = Needs("source", "embedded"), Needs(DEMONSTRATIONS)


@dataclass(frozen=True)
class Config(TextConfig):
    source: Source = "embedded"  # embedded | PATH.jsonl (test.jsonl beside it is the test split) | hub id owner/name
    train: Annotated[Size, EMBEDDED] = 7473  # size of the train split
    rare: Annotated[Fraction, EMBEDDED] = 0.46  # share of the rare kinds in every split
    demonstrations: Annotated[Problems, EMBEDDED, SHOWN] = 20_000  # worked answers of the head kinds
    rare_demonstrations: Annotated[Problems, EMBEDDED, SHOWN] = 10  # worked answers of each rare kind
    rare_repeat: Annotated[Count, EMBEDDED, SHOWN] = 30  # how often each rare one is repeated in the set
    direct: Annotated[Fraction, SHOWN] = 0.0  # share of answers shown without their working, in the run's last part
    direct_from: Annotated[Fraction, SHOWN, Needs("direct")] = 0.6  # the progress (0 to 1) at which that part begins


def make(config: Config, seed: int, device: str | torch.device) -> TextEnv:
    problems, source = load(config)
    own = config.source == "embedded"
    return text_env(
        config,
        problems,
        source,
        seed,
        device,
        demonstrations=partial(shown, config) if own else None,
        direct=config.direct,
        direct_from=config.direct_from,
        ceiling=(MARKER,) if own else (),
    )


def shown(config: Config, held_out: Sequence[Problem]) -> list[Problem]:
    """The embedded worked answers, but for those that stand in every prompt."""
    questions = {problem.question for problem in held_out}
    found = demonstrations(0, config.demonstrations, config.rare_demonstrations, config.rare_repeat)
    return [problem for problem in found if problem.question not in questions]


def load(config: Config) -> tuple[dict[str, list[Problem]], str]:
    """The three splits, and one line that says what they are."""
    if config.source == "embedded":
        problems = embedded(0, config.train, config.validation, config.test, config.rare)
        return problems, f"embedded: generated word problems in GSM8K's format, not GSM8K ({_sizes(problems)})"
    path = home(config.source)
    if os.path.isfile(path) or config.source.endswith((".jsonl", ".json")):
        beside = path.with_name("test.jsonl")
        rows = {"train": problems_from(read_jsonl(path))}
        if beside.is_file() and beside.resolve() != path.resolve():
            rows["test"] = problems_from(read_jsonl(beside))
        name = f"{path}" + (f" and {beside.name}" if "test" in rows else "")
    elif is_hub_id(config.source):
        rows = {split: problems_from(found) for split, found in hub_rows(config.source).items()}
        name = f"hub dataset {config.source}"
    else:
        check_no_folder(config.source)
        given = config.source if len(config.source) <= 80 else f"{config.source[:77]}..."
        raise UserError(f"env.source={given!r} is no source; allowed are embedded, PATH.jsonl, or a hub id owner/name")
    problems = _split(rows, config, name)
    tell_shared(rows, problems, name)
    return problems, f"{name} ({_sizes(problems)})"


def _split(rows: dict[str, list[Problem]], config: Config, name: str) -> dict[str, list[Problem]]:
    """Held out by a hash of the question, so that a split does not depend on the order of the rows."""
    if "train" not in rows:
        raise UserError(f"{name} has no split 'train' (it has: {', '.join(rows)}); use one that has, or a JSONL file")
    train = rows["train"]
    most = max(1, len(train) // 10)
    asked = {"test": config.test, "validation": config.validation}
    wanted = {split: min(size, most) for split, size in asked.items() if split not in rows}
    problems: dict[str, list[Problem]] = {"train": [], "validation": [], "test": []}
    for split, problem in zip(hold_out([problem.question for problem in train], wanted), train, strict=True):
        problems[split].append(problem)
    for split, size in asked.items():
        if split in rows:
            problems[split] = rows[split][:size]
    return problems


def tell_shared(rows: dict[str, list[Problem]], problems: dict[str, list[Problem]], name: str) -> None:
    """Say in one line that a split which was given asks what is trained on, too."""
    trained = {problem.question for problem in rows["train"]}
    for split in rows.keys() & {"validation", "test"}:
        questions = {problem.question for problem in problems[split]}
        if shared := len(questions & trained):
            warn(
                f"{name}: {shared:,} of {len(questions):,} {split} questions are in the train split, too, so {split} "
                "measures what was trained on: take them out of one of the two"
            )


def _sizes(problems: dict[str, list[Problem]]) -> str:
    return ", ".join(f"{len(rows):,} {split}" for split, rows in problems.items())
