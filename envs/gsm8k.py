"""Grade-school word problems: embedded ones (the default), a JSONL file in GSM8K's format, or a hub dataset."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import torch
from annotated_types import Ge, Le

from rlkit.api import Count, Fraction, Place
from rlkit.fields import ASKED, DEMONSTRATIONS, Needs, Problems
from rlkit.text import TextEnv, splits
from rlkit.text.problems import MARKER, Problem, demonstrations, embedded
from rlkit.text.sources import problems_from

from ._text import KindWeights, TextConfig, text_env

Size = Annotated[int, Ge(1), Le(100_000)]
Source = Annotated[str, Place("file", words=("embedded",), beside=("test.jsonl",))]
EMBEDDED, SHOWN = Needs("source", "embedded"), Needs(DEMONSTRATIONS)
Repeats = Annotated[Count, EMBEDDED, SHOWN, Needs("rare_demonstrations")]
Late = Annotated[Fraction, SHOWN, Needs("direct")]


@dataclass(frozen=True)
class Config(TextConfig):
    source: Source = "embedded"  # embedded | PATH.jsonl (test.jsonl beside it is the test split) | hub id owner/name
    train: Annotated[Size, EMBEDDED, Needs(ASKED)] = 7473  # size of the train split
    rare: Annotated[Fraction, EMBEDDED] = 0.46  # share of the rare kinds in every split
    demonstrations: Annotated[Problems, EMBEDDED, SHOWN] = 20_000  # worked answers of the frequent kinds
    rare_demonstrations: Annotated[Problems, EMBEDDED, SHOWN] = 10  # worked answers of each rare kind
    rare_repeat: Repeats = 30  # how often each worked answer of a rare kind is repeated
    kind_weights: KindWeights = field(default_factory=dict)  # relative frequency of the rows of each `kind`
    direct: Annotated[Fraction, SHOWN] = 0.0  # share of answers shown without their working, in the run's last part
    direct_from: Late = 0.6  # progress of the run (0 to 1) at which the part without working begins


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
        weights=config.kind_weights,
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
        return problems, f"embedded: generated word problems in GSM8K's format, not GSM8K ({splits.counted(problems)})"
    sizes = {"test": config.test, "validation": config.validation}
    return splits.load(config.source, problems_from, sizes, "embedded, PATH.jsonl, or a hub id owner/name")
