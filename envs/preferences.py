"""Stored preference pairs (prompt, chosen, rejected): from a JSONL file, or made from the embedded problems."""

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Ge, Le

from rlkit.api import Count, Fraction, Place, UserError
from rlkit.fields import ANSWERS, SIDES, Needs, Problems
from rlkit.paths import home
from rlkit.seeding import derive
from rlkit.text import PROMPT, Pair, PairEnv, TextEnv
from rlkit.text.preferring import REFERENCE, pairs_from, tell_continued
from rlkit.text.problems import MARKER, Problem, bare, embedded
from rlkit.text.sources import hold_out, read_jsonl, tell_unread
from rlkit.text.templates import Draw

Size = Annotated[int, Ge(1), Le(100_000)]
Source = Annotated[str, Place("file", words=("embedded",))]
EMBEDDED = Needs("source", "embedded")


@dataclass(frozen=True)
class Config:
    source: Source = (
        "embedded"  # embedded | PATH.jsonl with chosen, rejected and often prompt (and ref_{chosen,rejected}_logps)
    )
    rows: Count = 32  # pairs per rollout
    max_tokens: Annotated[Count, EMBEDDED, Needs(ANSWERS)] = 64  # longest answer where problems are solved to measure
    validation: Problems = 512  # pairs of the validation split; of a file at most a tenth of its pairs, or one
    test: Problems = 1319  # pairs of the test split; of a file at most a tenth of its pairs, or one
    train: Annotated[Size, EMBEDDED] = 7473  # pairs of the train split
    rare: Annotated[Fraction, EMBEDDED] = 0.46  # share of the rare problem kinds
    bare: Annotated[Fraction, EMBEDDED, Needs(SIDES)] = 0.5  # share of rejected sides that are the bare result


def make(config: Config, seed: int, device: str | torch.device) -> PairEnv:
    if config.source == "embedded":
        return _embedded(config, seed, device)
    if not config.source.endswith((".jsonl", ".json")):
        raise UserError(f"env.source={config.source!r} is not a source of pairs; allowed are embedded or PATH.jsonl")
    rows = read_jsonl(home(config.source))
    pairs = pairs_from(rows)
    tell_unread(home(config.source), {"validation": config.validation, "test": config.test})
    most = max(1, len(pairs) // 10)
    sizes = {"test": min(config.test, most), "validation": min(config.validation, most)}
    splits: dict[str, list[Pair]] = {"train": [], "validation": [], "test": []}
    for split, pair in zip(hold_out([pair.prompt for pair in pairs], sizes), pairs, strict=True):
        splits[split].append(pair)
    stored = sum(pair.ref is not None for pair in pairs)
    if 0 < stored < len(pairs):
        raise UserError(
            f"{config.source}: {stored} of {len(pairs)} rows have {' and '.join(REFERENCE)}; give all or none"
        )
    counts = ", ".join(f"{len(rows):,} {split}" for split, rows in splits.items())
    name = Path(config.source).name
    if not any("prompt" in row for _, row in rows):
        tell_continued(splits, name)
    source = f"{name} ({counts} pairs; accuracy: how often the chosen side is likelier, or scores higher)"
    return PairEnv(splits, config.rows, seed, device, source)


def _embedded(config: Config, seed: int, device: str | torch.device) -> PairEnv:
    problems = embedded(0, config.train, config.validation, config.test, config.rare)
    pairs: dict[str, list[Pair]] = {}
    for split, found in problems.items():
        draw = Draw(derive(0, "rejected", *([] if split == "train" else [split])))
        pairs[split] = [pair_of(problem, draw, config.bare) for problem in found]
    source = (
        f"embedded: pairs made from generated word problems, not GSM8K ({config.train:,} pairs; "
        f"accuracy: problems solved, of a reward model pairs ranked, {config.validation:,} validation, "
        f"{config.test:,} test)"
    )
    solved = TextEnv(problems, config.rows, seed, device, config.max_tokens, source=source, ceiling=(MARKER,))
    return PairEnv(pairs, config.rows, seed, device, source, problems=solved)


def pair_of(problem: Problem, draw: random.Random, share: float) -> Pair:
    """Chosen: the worked answer. Rejected: the bare one, or the working with a wrong operation or a slip at its end."""
    rejected = bare(problem) if draw.random() < share else _mistaken(problem.answer, draw)
    return Pair(PROMPT.replace("{question}", problem.question), problem.answer, rejected)


def _mistaken(answer: str, draw: random.Random) -> str:
    """The last step goes wrong, and the final answer with it."""
    *_, step = re.finditer(r"<<(\d+)([-+*/])(\d+)=(\d+)>>\d+", answer)
    left, sign, right, right_value = int(step[1]), step[2], int(step[3]), int(step[4])
    other = {"+": "*", "-": "+", "*": "+", "/": "-"}[sign]
    value = {"+": left + right, "-": left - right, "*": left * right}[other]
    if value in (right_value, 0) or value < 0 or draw.random() < 0.5:  # a slip: the right operation, the wrong number
        other, value = sign, right_value + 1 + int(draw.random() * 3)
    wrong = f"<<{left}{other}{right}={value}>>{value}"
    end = answer[step.end() :]
    return answer[: step.start()] + wrong + end[: end.rindex(MARKER)] + f"{MARKER} {value}"
