"""The results of measuring: one score per episode or problem, and reference scores."""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NotRequired, Protocol, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlkit import ranks
from rlkit.errors import UserError

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


def unit_for(count: int, unit: Unit) -> str:
    """The unit behind a number: 1 episode, 2 episodes."""
    return unit.removesuffix("s") if count == 1 else unit


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


class Measures(Protocol):
    """An environment, which may be a user's own."""

    @property
    def metric(self) -> str: ...


def checked(env: Measures, found: object, finite: bool = True) -> Scores:
    """What `evaluate` of an environment returned, with numbers of Python in its metrics.

    finite: False for a validation, of which a curve shows a gap.

    Raises: UserError where it is not a finite number for each episode.
    """
    name = f"{type(env).__name__}.evaluate"
    if not isinstance(found, Scores):
        raise UserError(f"{name} returned a {type(found).__name__}: let it return rlkit.scores.Scores(score, length)")
    for key, x in (("score", found.score), ("length", found.length)):
        if not isinstance(x, Tensor) or x.dim() != 1 or len(x) != len(found.score) or not len(x):
            shape = f"a tensor of the shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
            raise UserError(f"{name} gave as {key} {shape}: let it be a tensor with a number for each episode")
        if finite and not bool(x.isfinite().all()):
            raise UserError(f"{name} gave a {key} that is not finite: let it be a number for each episode")
    if env.metric == "accuracy" and bool(((found.score < 0) | (found.score > 1)).any()):
        raise UserError(f"{name} gave an accuracy outside of 0 to 1: let the metric of the environment be 'return'")
    metrics = {key: _numbers(name, key, values, len(found.score), finite) for key, values in found.metrics.items()}
    score = found.score.detach()
    # Copies: an environment may fill the same tensors and lists at its next measurement.
    found = deepcopy(replace(found, score=score, length=found.length.detach(), metrics={}))
    wide = found.score if score.dtype in (torch.float32, torch.float64) else found.score.double()
    return replace(found, score=wide, metrics=metrics)


def _numbers(name: str, key: str, given: object, episodes: int, finite: bool) -> list[float | None]:
    """One of the metrics beside the score: a number for each episode, or None where it says nothing of one."""
    values = given.tolist() if isinstance(given, Tensor | np.ndarray) else given
    if isinstance(values, Sequence) and not isinstance(values, str):
        values = [x.item() if isinstance(x, Tensor | np.ndarray) and x.ndim == 0 else x for x in values]
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != episodes:
        many = f"{len(values)} values" if isinstance(values, Sequence) else f"a {type(values).__name__}"
        raise UserError(f"{name} gave {many} of the metric '{key}' for {episodes} episodes: give one for each, or None")
    if bad := [x for x in values if x is not None and not _is_number(x, finite)]:
        raise UserError(f"{name} gave {bad[0]!r} as the metric '{key}' of an episode: give finite numbers, or None")
    return [None if x is None else float(x) for x in values]


def _is_number(x: object, finite: bool) -> bool:
    return isinstance(x, int | float | np.number | np.bool_) and (not finite or math.isfinite(float(x)))


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
