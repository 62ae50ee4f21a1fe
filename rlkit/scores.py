"""What measuring gives: one score per episode or problem, and what scores are compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from torch import Tensor

Split = Literal["train", "validation", "test"]
Unit = Literal["episodes", "problems", "pairs"]  # what a score is of
Json = dict[str, Any]  # what a JSON file of a run folder holds: a file may be of another version, or by hand


@dataclass(frozen=True)
class Reference:
    """What counts as 0 and as 1 where scores of different domains are compared: (score − low) / (high − low)."""

    low: float
    high: float
    low_is: str  # in words: a random policy, the untouched model
    high_is: str  # the optimum, a published result, the ceiling


class Sample(TypedDict):
    """One completion in words: a line of completions.jsonl."""

    prompt: str
    completion: str
    answer: str
    score: float
    kind: str


@dataclass
class Scores:
    """What `Env.evaluate` measured: one number per episode or problem, and details of each."""

    score: Tensor  # [episodes], float64
    length: Tensor  # [episodes], steps or tokens
    kinds: list[str] | None = None  # the problem kind of each, for text
    groups: list[str] | None = None  # the group of each kind: common or rare
    samples: list[Sample] = field(default_factory=list)
    items: Sequence[tuple[str, ...]] | None = None  # what each is of, for text: a problem, or two attempts at one
    metrics: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # beside the score, by name [episodes]
