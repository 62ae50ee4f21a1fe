"""The embedded word problems: GSM8K's format (worked steps, `#### N`), our own wording, small numbers, thirteen kinds.

They are not GSM8K: names, objects and sentences are few, so that a model of 0.4 M parameters can learn to read them.
The shipped base model was trained on thousands of problems of six *head* kinds and a handful of seven *rare* kinds. The
rare kinds need compositions of operations that no head kind has. Numbers are in the same range in both: the difficulty
is knowing which operation applies to which numbers. A problem's split is a hash of its kind and numbers, so a held-out
problem shares its wording with training problems, but never its numbers.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rlkit.prompts import Turn
from rlkit.seeding import derive
from rlkit.text.templates import HEAD, RARE, Draw

MARKER = "####"
KINDS = {**HEAD, **RARE}
_HEAD_DRAWS = ("chain", "chain", *HEAD)  # a chain is drawn three times as often as any other head kind


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, its worked answer (last line `#### N`) and its kind; `columns`: all other fields of a dataset row."""

    question: str
    answer: str
    kind: str = ""
    columns: Mapping[str, object] = field(default_factory=dict, compare=False)
    turns: tuple[Turn, ...] = ()  # the conversation that became the question; empty if the question was text

    @property
    def worked(self) -> str:
        """The answer as a model is shown it."""
        return self.answer

    def given(self) -> Mapping[str, object]:
        """The keyword arguments that it gives to reward functions."""
        return {**self.columns, "question": self.question, "answer": self.answer, "kind": self.kind}


def make(kind: str, draw: Draw) -> Problem:
    """One problem of a kind."""
    question, steps, answer = KINDS[kind](draw)
    return Problem(question, "\n".join([*steps, f"{MARKER} {answer}"]), kind)


def key_of(problem: Problem) -> str:
    """The kind and the numbers in the order of the question: problems with the same key are the same exercise."""
    return "/".join([problem.kind, *re.findall(r"\d+", problem.question)])


def split_of(problem: Problem) -> str:
    """train (80 %), validation or test (10 % each): a hash of the kind and the numbers, so no two splits share any."""
    bucket = hashlib.blake2b(key_of(problem).encode(), digest_size=8).digest()
    part = int.from_bytes(bucket, "big") % 10
    return "test" if part == 0 else "validation" if part == 1 else "train"


def sample(draw: Draw, count: int, split: str, rare: float) -> list[Problem]:
    """`count` problems of a split, a share `rare` of them of the rare kinds."""
    problems: list[Problem] = []
    tail = tuple(RARE)
    while len(problems) < count:
        kind = draw.pick(tail) if draw.random() < rare else draw.pick(_HEAD_DRAWS)
        problem = make(kind, draw)
        while split_of(problem) != split:  # redraw the same kind, so that every split has the same mixture
            problem = make(kind, draw)
        problems.append(problem)
    return problems


def embedded(
    seed: int = 0, train: int = 7473, validation: int = 512, test: int = 1319, rare: float = 0.46
) -> dict[str, list[Problem]]:
    """The three splits, GSM8K's sizes by default; `seed` is the data's own, so every run sees the same problems."""
    sizes = {"train": train, "validation": validation, "test": test}
    return {split: list(_drawn(seed, size, split, rare)) for split, size in sizes.items()}


@lru_cache(maxsize=3)  # the splits of one environment: the runs of a comparison draw them once
def _drawn(seed: int, size: int, split: str, rare: float) -> tuple[Problem, ...]:
    return tuple(sample(Draw(derive(seed, "problems", split)), size, split, rare))


def demonstrations(seed: int = 0, head: int = 20_000, rare: int = 10, repeat: int = 30) -> list[Problem]:
    """The training set of a base: `head` of the head kinds, and `rare` of each rare kind, each `repeat` times."""
    draw = Draw(derive(seed, "demonstrations"))
    problems = sample(draw, head, "train", 0.0)
    for kind in RARE:
        few: dict[str, Problem] = {}
        while len(few) < rare:
            problem = make(kind, draw)
            if split_of(problem) == "train":
                few.setdefault(key_of(problem), problem)
        problems += list(few.values()) * repeat
    return problems


def bare(problem: Problem) -> str:
    """The final answer without reasoning: the last line, `#### N`."""
    return problem.answer[problem.answer.rindex(MARKER) :]


def is_direct(problem: Problem, seed: int, index: int, share: float, kept: Collection[str] = tuple(RARE)) -> bool:
    """Whether draw number `index` shows only the final answer: with probability `share`, never for a kind of `kept`.

    Pure in its arguments. Rare kinds keep their reasoning: their few demonstrations are the only ones to learn from.
    """
    return problem.kind not in kept and derive(seed, "direct", index) / 2**63 < share
