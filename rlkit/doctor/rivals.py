"""Whether a measure of quality falls while what is rewarded rises: the policy may exploit its reward.

The rule is of trends. Points (proxy, gold) are those of the looks at which both were measured. From where the gold
measure was highest (the mean of SMOOTH points in a row) there must be LEAST points or more; over them the proxy must
rise and the gold measure fall, both with a z of the Mann-Kendall test above Z; and the last SMOOTH points must be lower
than the highest by a share DROP of it. All of that must hold at LOOKS points in a row. Reward hacking: Gao et al. 2023,
arXiv:2210.10760, where gold scores rise and then fall while proxy scores rise on.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rlkit.scores import REWARD

METRIC = "metric/"  # begins the name of what was measured beside the score on the validation split
SMOOTH, LEAST, LOOKS, Z, DROP = 3, 5, 3, 3.0, 0.1
Points = Sequence[Sequence[float]]


@runtime_checkable
class Weighs(Protocol):
    """An environment that adds up several rewards."""

    @property
    def penalties(self) -> Collection[str]:
        """The names of those that have a negative weight: they should fall."""
        ...


@dataclass(frozen=True)
class Divergence:
    """How far a proxy rose and a gold measure fell: where the gold was highest, and at the end."""

    proxy_then: float
    proxy_now: float
    gold_then: float
    gold_now: float


def look(
    points: dict[str, list[list[float]]], x: Mapping[str, float], penalties: Collection[str]
) -> tuple[str, dict[str, float]]:
    """Add what a look measured beside the return to the points of each gold measure.

    Returns the name of the first that falls while the return rises, and the numbers of that; empty where none does.
    """
    found: dict[str, Divergence] = {}
    if math.isfinite(x.get("rollout/return", math.nan)):
        for gold in golds(x, penalties):
            points.setdefault(gold, []).append([x["rollout/return"], x[gold]])
            if not found and (apart := diverged(points[gold])) is not None:
                found[gold] = apart
    return next(((gold, {"diverged": 1.0, **asdict(apart)}) for gold, apart in found.items()), ("", {}))


def golds(x: Mapping[str, float], penalties: Collection[str]) -> list[str]:
    """The measures that should not fall while the return rises: metrics, and each reward except penalties.

    What is counted in rollouts, too, is none: the number of turns or tool errors may well fall.
    """
    rewards = [name for name in x if name.startswith(REWARD)]
    several = [name for name in rewards if name.removeprefix(REWARD) not in penalties] if len(rewards) > 1 else []
    beside = [name.removeprefix(METRIC) for name in x if name.startswith(METRIC)]
    metrics = [METRIC + name for name in beside if name not in penalties and f"rollout/{name}" not in x]
    return [*metrics, *several]


def diverged(points: Points) -> Divergence | None:
    """Apply the rule to points (proxy, gold) [N, 2], in the order of time."""
    found = _found(points)
    again = found and all(_found(points[:-back]) for back in range(1, LOOKS))
    return found if again else None


def _found(points: Points) -> Divergence | None:
    if len(points) < LEAST:
        return None
    proxy, gold = np.array(points, dtype=np.float64).T
    smooth = {name: np.convolve(x, np.full(SMOOTH, 1 / SMOOTH), "valid") for name, x in (("p", proxy), ("g", gold))}
    best = int(smooth["g"].argmax())
    then, now = float(smooth["g"][best]), float(smooth["g"][-1])
    if len(gold) - best < LEAST or now > then - DROP * abs(then):
        return None
    if trend(proxy[best:]) <= Z or trend(gold[best:]) >= -Z:
        return None
    return Divergence(float(smooth["p"][best]), float(smooth["p"][-1]), then, now)


def trend(x: NDArray[np.float64]) -> float:
    """z of the Mann-Kendall test (Mann 1945): S = Σ_{i<j} sign(x_j − x_i), z = (S ∓ 1) / √(n(n − 1)(2n + 5) / 18).

    x: [n], n ≥ 2. Above 0 it rises; without a trend z is about normal. Ties are not corrected for: z is nearer to 0.
    """
    n = len(x)
    s = float(np.triu(np.sign(x[None, :] - x[:, None]), 1).sum())
    return float((s - np.sign(s)) / np.sqrt(n * (n - 1) * (2 * n + 5) / 18))
