"""Draws problems from several tasks: first the task, by its probability, then the next problem of that task.

The probability of a task is proportional to its weight w. A curriculum by success multiplies it by the learnability,

    chance_k ∝ w_k · (4 p_k (1 − p_k) + FLOOR),     p_k ← p_k + RATE · (s − p_k),

where s is the mean score of the attempts at the task in a rollout, clipped to [0, 1], and p_k starts at ½. p (1 − p) is
the variance of a score that is 0 or 1, and bounds that of any score in [0, 1]. Where it is 0, all attempts have equal
scores, and algorithms that compare them learn nothing. Source: the learnability of Rutherford et al., arXiv:2408.15099,
and Foster et al., arXiv:2502.12272. FLOOR keeps every task in the measurement.
"""

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Literal

import numpy as np

from rlkit.api import State
from rlkit.counters import natural
from rlkit.errors import UserError
from rlkit.seeding import numpy_generator
from rlkit.text.shuffle import Shuffle

Curriculum = Literal["none", "success"]
FLOOR, RATE, UNKNOWN = 0.1, 0.1, 0.5


class Mixture:
    """The indices of the next problems: a pure function of the seed, the counters, and the scores so far.

    Arguments:
        kinds: the task of each problem, [N].
        weights: of each task; empty: its number of problems.

    Raises: UserError where there is only one task, or a weight for an unknown task.
    """

    def __init__(
        self, kinds: Sequence[str], seed: int, weights: Mapping[str, float], curriculum: Curriculum = "none"
    ) -> None:
        own: dict[str, list[int]] = {}
        for index, kind in enumerate(kinds):
            own.setdefault(kind, []).append(index)
        self.rows = {kind: own[kind] for kind in sorted(own)}
        check(self.rows, weights)
        self.seed, self.curriculum = seed, curriculum
        self.weights = {kind: weights.get(kind, 0.0) if weights else len(rows) for kind, rows in self.rows.items()}
        self.success = dict.fromkeys(self.rows, UNKNOWN)
        self.drawn = 0
        self._next = {kind: Shuffle(len(rows), seed, f"prompts/{kind}") for kind, rows in self.rows.items()}

    def chances(self) -> dict[str, float]:
        """The probability of each task; they sum to 1."""
        found = dict(self.weights)
        if self.curriculum == "success":
            found = {kind: w * (4 * (p := self.success[kind]) * (1 - p) + FLOOR) for kind, w in found.items()}
        total = sum(found.values())
        return {kind: value / total for kind, value in found.items()}

    def take(self, count: int) -> list[int]:
        """The next `count` problems; the task at each position of the stream depends only on that position."""
        chances = self.chances()
        bounds, kinds = np.cumsum(list(chances.values())), list(chances)
        chosen = []
        for place in range(self.drawn, self.drawn + count):
            at = bounds.searchsorted(numpy_generator(self.seed, "task", place).random() * bounds[-1], side="right")
            kind = kinds[int(at)]
            chosen.append(self.rows[kind][self._next[kind].take(1)[0]])
        self.drawn += count
        return chosen

    def learn(self, kinds: Sequence[str], score: Sequence[float]) -> dict[str, list[float]]:
        """Update the success rates by the scores of attempts. Returns: drawn tasks and success as metrics [rows]."""
        scores: dict[str, list[float]] = {}
        for row, kind in enumerate(kinds):
            scores.setdefault(kind, []).append(min(max(score[row], 0.0), 1.0))
        for kind, values in scores.items():
            self.success[kind] += RATE * (sum(values) / len(values) - self.success[kind])
        drawn = {f"{kind}/drawn": [float(each == kind) for each in kinds] for kind in self.rows}
        return drawn | {f"{kind}/success": [rate] * len(kinds) for kind, rate in self.success.items()}

    def state_dict(self) -> State:
        following = {kind: shuffle.drawn for kind, shuffle in self._next.items()}
        return {"drawn": self.drawn, "next": following, "success": dict(self.success)}

    def load_state_dict(self, state: State) -> None:
        self.drawn = natural(state["drawn"])
        for kind in self.rows.keys() & state["next"].keys():  # a file that was changed may have other tasks
            self._next[kind].drawn, self.success[kind] = natural(state["next"][kind]), _share(state["success"][kind])


def _share(x: object) -> float:
    if not isinstance(x, float) or not 0 <= x <= 1:
        raise TypeError(f"{x!r} is not a share")
    return x


def check(rows: Mapping[str, Sequence[int]], weights: Mapping[str, float]) -> None:
    """Refuse tasks and weights that cannot be mixed, or would change nothing."""
    if "" in rows:
        raise UserError("a mixture needs the 'kind' of every row, a text or a number: one has none, or another value")
    if len(rows) < 2:
        raise UserError(f"a mixture needs several kinds of problems, and here is one: {next(iter(rows), 'none')}")
    if strange := [kind for kind in weights if kind not in rows]:
        raise UserError(f"a weight is given for {strange[0]!r}, of which no problem is; there are: {', '.join(rows)}")
    check_weights(weights.values())


def check_weights(weights: Collection[float]) -> None:
    """Refuse weights that say of no kind how often it is drawn; none at all: each is as likely as any other."""
    total = sum(weights) if weights else 1.0
    if not all(value >= 0 for value in weights) or not (total * FLOOR > 0 and isfinite(2 * total)):
        raise UserError("the weights of a mixture are finite numbers of at least 0, one of them above it")
