"""The results of measuring: one score per episode or problem, and reference scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

import torch
from torch import Tensor

from rlkit import ranks

T = TypeVar("T")

Split = Literal["train", "validation", "test"]
Unit = Literal["episodes", "problems", "pairs"]  # the unit of a score
REWARD, RATED = "reward/", "rated/"  # batch keys: the reward of a function for each row, and whether it gave one
Json = dict[str, Any]  # JSON of a run folder: the file may be of another version, or edited by hand


@dataclass(frozen=True)
class Reference:
    """The scores that count as 0 and 1 when domains are compared: (score − low) / (high − low)."""

    low: float
    high: float
    low_is: str  # a description: a random policy, the untrained model
    high_is: str  # a description: the optimum, a published result, the ceiling


class Sample(TypedDict):
    """One completion as texts: a line of completions.jsonl."""

    prompt: str
    completion: str
    answer: str
    score: float
    kind: str
    rewards: NotRequired[dict[str, float | None]]  # by function, without weights; None: it gave none


@dataclass
class Scores:
    """The result of `Env.evaluate`: one number per episode or problem, and details of each."""

    score: Tensor  # [episodes], float64
    length: Tensor  # [episodes], steps or tokens
    kinds: list[str] | None = None  # the problem kind of each, for text
    groups: list[str] | None = None  # the group of each kind: common or rare
    samples: list[Sample] = field(default_factory=list)
    items: Sequence[tuple[str, ...]] | None = None  # for text, the identity of each: a problem, or two attempts at one
    metrics: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # name → further values [episodes]
    truncated: Tensor | None = None  # for control, [episodes], bool: the environment cut it, as at a step limit


def of_all(rows: int, measure: Callable[[slice], Scores]) -> Scores:
    """Scores of so many episodes or problems; each rank measures its part."""
    if ranks.size() == 1:
        return measure(slice(0, rows))
    ranks.gather()
    parts = ranks.shared(rows, lambda mine: vars(measure(mine)) if mine.stop > mine.start else {})
    return joined([Scores(**part) for part in parts if part])


def joined(parts: Sequence[Scores]) -> Scores:
    """The scores of several parts, concatenated."""

    def all_of(lists: Sequence[Sequence[T] | None], *missing: T) -> list[T] | None:
        """None where all are; a part that has none is filled, as one without a rare problem has no groups."""
        if all(each is None for each in lists):
            return None
        both = zip(lists, parts, strict=True)
        return [x for each, part in both for x in (list(missing) * len(part.score) if each is None else each)]

    names = dict.fromkeys(name for part in parts for name in part.metrics)
    cut = [part.truncated for part in parts if part.truncated is not None]
    missing = {id(part): [None] * len(part.score) for part in parts}
    return Scores(
        score=torch.cat([part.score for part in parts]),
        length=torch.cat([part.length for part in parts]),
        kinds=all_of([part.kinds for part in parts], ""),
        groups=all_of([part.groups for part in parts], "common"),
        samples=all_of([part.samples for part in parts]) or [],
        items=all_of([part.items for part in parts]),
        truncated=torch.cat(cut) if len(cut) == len(parts) else None,
        metrics={name: [x for part in parts for x in part.metrics.get(name, missing[id(part)])] for name in names},
    )
