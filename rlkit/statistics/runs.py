"""Statistics of few runs, after Agarwal et al. 2021 (arXiv:2108.13264): pure functions of arrays.

`runs` holds one array for each environment, an algorithm's scores there: [..., n], its n runs along the last axis; n
may differ. Every statistic reduces that axis, so it reads one set of runs [n] and bootstrap repetitions [R, n] alike.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rlkit import seeding
from rlkit.statistics.arrays import EXACT, check

Array = NDArray[np.float64]
Runs = Sequence[Array]
Interval = tuple[Array, Array]
Number = TypeVar("Number", float, Array)
Statistic = Callable[..., Array]  # ...: of one group of runs, or of two

REPETITIONS = 10_000  # of the bootstrap: the ends of an interval vary by about a hundredth of its width
BLOCK = 1_000_000  # numbers that a statistic is given at a time: with its copies some tens of megabytes
COUNTED = 300_000_000  # additions that count every way to share out runs; more take seconds
BAND_REPETITIONS = 2_000  # the same of a band, at each of its points


def check_runs(*groups: Runs) -> None:
    """Refuse environments without runs, and scores that are nan or infinite."""
    for runs in groups:
        for x in runs:
            check(x, "scores")


def iqm(runs: Runs) -> Array:
    """Interquartile mean over all runs of all environments: the mean without the lowest and the highest quarter.

    ⌊n/4⌋ runs are left out at each end, so up to three runs it is the mean.
    """
    from scipy.stats import trim_mean

    check_runs(runs)
    mean: Array = trim_mean(np.concatenate(runs, axis=-1), 0.25, axis=-1)
    return mean


def improvement(x: Runs, y: Runs) -> Array:
    """P(X > Y): how often a run of x scores higher than a run of y, ties half, averaged over environments.

    In each environment the Mann-Whitney statistic: Σ_ij [x_i > y_j] + ½[x_i = y_j], over n·m.
    """
    check_runs(x, y)
    each = []
    for a, b in zip(x, y, strict=True):  # one run of x at a time: [..., n, m] at once would take gigabytes
        wins = sum(np.sign(a[..., i, None] - b).sum(-1) for i in range(a.shape[-1]))  # whole numbers, so exact
        each.append((1 + wins / (a.shape[-1] * b.shape[-1])) / 2)
    mean: Array = np.mean(each, axis=0)
    return mean


def tied(x: Array, least: float = 0.0) -> Array:
    """Scores [n], of which those that differ behind 12 digits are one: means of the same returns in another order.

    least: so are those that differ by no more than this, see `arrays.rounding`; it may change all digits of a score.
    """
    order = np.argsort(x, kind="stable")
    ordered, size = x[order], np.abs(x[order])
    near = np.maximum(EXACT * np.maximum(size[1:], size[:-1]), least)
    with np.errstate(over="ignore"):
        group = np.cumsum([0, *~(np.diff(ordered) <= near)])
    found = np.empty_like(x)
    found[order] = ordered[np.searchsorted(group, group)]
    return found


def profile(runs: Runs, thresholds: Array) -> Array:
    """Performance profile: the fraction of runs with a score above τ, averaged over environments, [τ, ...]."""
    check_runs(runs)
    mean: Array = np.mean([[(x > tau).mean(-1) for tau in thresholds] for x in runs], axis=0)
    return mean


def interval(statistic: Statistic, *groups: Runs, repetitions: int = REPETITIONS, seed: int = 0) -> Interval | None:
    """The 95 % percentile interval of a statistic under the stratified bootstrap; always the same resamples.

    Each repetition draws the runs of every environment anew, with replacement, for each group on its own. None where
    an environment has a single run: nothing is known of its spread. From few runs the interval is too narrow.
    """
    check_runs(*groups)
    if any(x.shape[-1] < 2 for runs in groups for x in runs):
        return None
    draw = seeding.numpy_generator(seed, "stratified bootstrap")
    drawn = [[draw.integers(x.shape[-1], size=(repetitions, x.shape[-1])) for x in runs] for runs in groups]
    block = max(1, BLOCK // max(x.size for runs in groups for x in runs))  # repetitions at a time
    found = []
    for at in range(0, repetitions, block):
        again = [
            [x[..., index[at : at + block]] for x, index in zip(runs, indices, strict=True)]
            for runs, indices in zip(groups, drawn, strict=True)
        ]
        found.append(statistic(*again))
    low, high = np.quantile(np.concatenate(found, axis=-1), [0.025, 0.975], axis=-1)
    return low, high


def chance(x: Runs, y: Runs) -> float:
    """How often two equal algorithms would differ as much: the p-value of a stratified permutation test.

    The runs of each environment are shared out anew, n to x and m to y, in all ways, and p is the share of those with
    |P(X > Y) − ½| as large as here. It is exact, with ties too, to 12 digits. Where counting takes seconds, as
    of 140 runs against 140, and of unequal numbers of runs in many environments, `drawn_chance` estimates it.
    """
    check_runs(x, y)
    pairs = [len(a) * len(b) for a, b in zip(x, y, strict=True)]
    common = math.lcm(*pairs)  # every environment counts alike: wins/(n·m) as whole numbers over `common`
    if sum(pairs) * common * len(pairs) > COUNTED:
        return drawn_chance(x, y)
    found, spread = 0, np.ones(1)
    for a, b, count in zip(x, y, pairs, strict=True):
        step, before, spread = common // count, spread, np.zeros(len(spread) + 2 * common)
        found += step * int(np.sign(a[:, None] - b).sum())
        for i, share in enumerate(shared_out(a, b)):
            spread[i * step : i * step + len(before)] += share * before
    differences = np.abs(np.arange(len(spread)) - common * len(pairs))
    p = spread[differences >= abs(found)].sum()
    return float(f"{p:.12g}")  # 2 ways of 40 are 0.05, and not a little less


def shared_out(a: Array, b: Array) -> Array:
    """P(wins − losses = w) for w = −n·m … n·m, where n of the n + m runs, drawn anew, meet the other m. [2·n·m + 1]

    With r the middle ranks, wins − losses = Σ_{i drawn} 2·r_i − (n + m + 1). (Mann & Whitney 1947)
    """
    from scipy.stats import rankdata

    fewer, limit = min(len(a), len(b)), len(a) * len(b)
    ways = np.zeros((fewer + 1, 2 * limit + 1))  # so many runs drawn, with this sum: in how many ways
    ways[0, limit] = 1.0
    ranks: Array = rankdata(np.concatenate([a, b]))
    for score in (2 * ranks).astype(int) - len(ranks) - 1:
        if score >= 0:
            ways[1:, score:] += ways[:-1, : 2 * limit + 1 - score]
        else:
            ways[1:, :score] += ways[:-1, -score:]
    share: Array = ways[fewer] / ways[fewer].sum()
    return share if fewer == len(a) else share[::-1]


def drawn_chance(x: Runs, y: Runs, repetitions: int = REPETITIONS) -> float:
    """`chance` by random divisions: (1 + those with |P(X > Y) − ½| as large) / (1 + repetitions).

    It depends neither on the order of the runs and environments nor on which algorithm is x.
    """
    draw = seeding.numpy_generator(0, "permutation")
    sizes = [(len(a), len(b)) for a, b in zip(x, y, strict=True)]
    if sorted(sizes) > sorted((m, n) for n, m in sizes):
        x, y = y, x
    pools = sorted((len(a), sorted([*a, *b])) for a, b in zip(x, y, strict=True))
    mixed = [(n, draw.permuted(np.tile(pool, (repetitions, 1)), axis=1)) for n, pool in pools]
    shared = [np.split(m, [n], axis=1) for n, m in mixed]
    found = improvement([a for a, _ in shared], [b for _, b in shared])
    as_large = np.abs(found - 0.5) >= np.abs(improvement(x, y) - 0.5) - 1e-12
    return float((1 + as_large.sum()) / (1 + repetitions))


def verdict(bounds: Interval | None, chance: float) -> str:
    """The verdict on x against y: better, worse, not separated, or too few runs.

    Separated means that the 95 % interval of P(X > Y) leaves 0.5 out and that chance alone does the same in fewer than
    5 % of cases. The interval alone is too bold for few runs: three of each sweep three others one time in ten.
    """
    if bounds is None:
        return "too few runs"
    if chance >= 0.05 or bounds[0] <= 0.5 <= bounds[1]:
        return "not separated"
    return "better" if bounds[0] > 0.5 else "worse"


def normalize(score: Number, low: float, high: float) -> Number:
    """(score − low) / (high − low): 0 is the lower reference, 1 the upper one; a score may lie outside."""
    if not np.isfinite([low, high]).all() or low == high:
        raise ValueError(f"references {low} and {high} do not tell what is 0 and what is 1")
    return (score - low) / (high - low)


def on_a_grid(
    curves: Sequence[tuple[Array, Array]], to_the_last: bool = False, points: int = 100
) -> tuple[Array, Array] | None:
    """Curves (x, y) of several runs on one grid [points] → values [points, n]; each holds its value until the next.

    The grid begins where all of them have begun. It ends with the first of them, or `to_the_last`: then those that
    have ended keep their value. None if it ends before it begins.
    """
    first, end = max(x[0] for x, _ in curves), (max if to_the_last else min)(x[-1] for x, _ in curves)
    if end <= first:
        return None
    grid = np.linspace(first, end, points)
    return grid, np.stack([y[np.searchsorted(x, grid, side="right") - 1] for x, y in curves], axis=-1)
