"""Statistics of episodes: intervals of one score, the shape of a distribution, and two policies compared in pairs."""

import itertools
import math
from collections.abc import Iterable
from typing import NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from rlkit import seeding
from rlkit.api import Scores
from rlkit.statistics.arrays import DIGITS, EXACT, check, rounding

Array = NDArray[np.float64]
Z = 1.959964  # the 97.5 % quantile of the normal distribution
SHOWN_BY = 0.05  # a difference with a smaller p-value is called shown
RESAMPLES = 9_999  # sign flips that are drawn where there are too many to try all
AT_ONCE = 10**7  # numbers that are drawn at a time: 80 MB


class Interval(TypedDict):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float
    episodes: int  # how many it is of: a metric may have no opinion on some


class Measured(TypedDict):
    """Greedy or sampled scores of one evaluation, in summary.json and evaluation-*.json."""

    metric: str
    mean: float
    low: float  # the 95 % interval of the mean, over episodes or problems
    high: float
    episodes: int
    greedy: bool
    length: float
    kinds: NotRequired[dict[str, float]]  # of text: the accuracy of each problem kind
    groups: NotRequired[dict[str, float]]  # and of each group of kinds
    metrics: NotRequired[dict[str, Interval]]  # of text: what was measured beside the score, by name
    exact: NotRequired[dict[str, float]]  # where the model is known: what the policy is worth
    distribution: NotRequired[dict[str, float]]
    at_step_limit: NotRequired[float]  # the share of episodes that were cut
    returns: NotRequired[list[float]]
    lengths: NotRequired[list[int]]


class Paired(TypedDict):
    """Two policies on the same episodes; positive differences speak for ours."""

    difference: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int
    test: str
    p: float
    better: str | None  # ours or theirs where p < 0.05


def wilson(successes: float, n: int) -> tuple[float, float]:
    """95 % interval of a proportion: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n) (Wilson 1927)."""
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"no proportion: {successes} of {n}")
    p, z2 = float(successes) / n, Z * Z
    center, spread = p + z2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low, high = (center - spread) / (1 + z2 / n), (center + spread) / (1 + z2 / n)
    low, high = (low if successes > 0 else 0.0), (high if successes < n else 1.0)  # which rounding misses by 1e-16
    return max(0.0, low), min(1.0, high)


def bootstrap(scores: Array, repetitions: int = 2000) -> tuple[float, float]:
    """95 % percentile interval of the mean over resampled episodes (Efron 1979); always the same resamples."""
    check(scores, "scores")
    draw, n = seeding.numpy_generator(0, "bootstrap"), len(scores)
    some = max(1, AT_ONCE // n)  # repetitions
    sizes = [(min(some, repetitions - i), n) for i in range(0, repetitions, some)]
    means = np.concatenate([scores[draw.integers(n, size=size)].mean(1) for size in sizes])
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def summarize(metric: str, scores: Scores, greedy: bool) -> Measured:
    """Mean score and length with a 95 % interval; for text also each problem kind, and the metrics beside the score."""
    x = scores.score.double().numpy()
    check(x, "scores")
    low, high = wilson(x.sum(), len(x)) if metric == "accuracy" else bootstrap(x)
    mean, length = float(x.mean()), float(scores.length.double().mean())
    summary: Measured = {
        "metric": metric,
        "mean": mean,
        "low": low,
        "high": high,
        "episodes": len(x),
        "greedy": greedy,
        "length": length,
    }
    if scores.kinds:
        kinds = np.array(scores.kinds)
        summary["kinds"] = {kind: float(x[kinds == kind].mean()) for kind in sorted(set(scores.kinds), key=by_size)}
    if scores.groups:
        groups = np.array(scores.groups)
        summary["groups"] = {group: float(x[groups == group].mean()) for group in sorted(set(scores.groups))}
    if scores.metrics:
        given = {name: [value for value in values if value is not None] for name, values in scores.metrics.items()}
        summary["metrics"] = {name: interval(np.array(values)) for name, values in given.items() if values}
    return summary


def by_size(kind: str) -> tuple[float, str]:
    """A key to sort kinds by: numbers by their size, then texts by their letters."""
    try:
        number = float(kind)
    except ValueError:
        number = math.inf
    return number if math.isfinite(number) else math.inf, kind


def interval(x: Array) -> Interval:
    """The mean and its 95 % interval: Wilson's where every number is 0 or 1, else by bootstrap."""
    check(x, "scores")
    low, high = wilson(x.sum(), len(x)) if set(x.tolist()) <= {0.0, 1.0} else bootstrap(x)
    return {"mean": float(x.mean()), "low": low, "high": high, "episodes": len(x)}


def pass_at_k(n: int, correct: int, k: int) -> float:
    """1 − C(n − c, k)/C(n, k): the chance that k of n samples hold a correct one, unbiased (arXiv:2107.03374).

    Computed in whole numbers up to the one division, so nothing overflows or cancels. Raises ValueError for k > n.
    """
    if not 0 < k <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {n} samples: k is 1 to {n}")
    if not 0 <= correct <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {correct} correct ones of {n} samples")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def distribution(returns: Array) -> dict[str, float]:
    """Mean, IQM (mean of the middle half, arXiv:2108.13264), standard deviation (n − 1), and the five quartiles."""
    check(returns, "returns")
    ordered = np.sort(returns)
    cut = len(ordered) // 4
    low, first, median, third, high = np.quantile(ordered, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {
        "mean": float(ordered.mean()),
        "iqm": float(ordered[cut : len(ordered) - cut].mean()),
        "std": float(ordered.std(ddof=1)) if len(ordered) > 1 else 0.0,
        "min": low,
        "q1": first,
        "median": median,
        "q3": third,
        "max": high,
    }


def histogram(returns: Array, bins: int = 10, width: int = 40) -> list[str]:
    """Lines of plain ASCII, one for each value where they are few, else for each bin: a bar and a count of episodes."""
    check(returns, "returns")
    largest = np.abs(returns).max() or 1.0
    shares, counts = np.unique(np.round(returns / largest, DIGITS), return_counts=True)
    values = shares * largest + 0.0  # 0 for -0
    names = as_different(values)
    if len(values) > bins:
        counts, edges = np.histogram(returns, bins)
        names = [f"{low} to {high}" for low, high in itertools.pairwise(as_different(edges))]
    wide, most = max(map(len, names)), counts.max()
    bars = ["#" * math.ceil(width * count / most) for count in counts]
    return [f"{name:>{wide}}  {bar:{width}}  {n}" for name, bar, n in zip(names, bars, counts, strict=True)]


def as_different(numbers: Array) -> list[str]:
    """Different numbers with four digits, or with as many more as they need to differ: 10001 is not 1e+04."""
    written = ([f"{x:.{digits}g}" for x in numbers] for digits in range(4, 13))
    return next((names for names in written if len(set(names)) == len(names)), [f"{x:.12g}" for x in numbers])


def mcnemar(wins: int, losses: int) -> float:
    """Exact p-value of McNemar's test (1947): of the problems that only one solves, is either side's share above half?

    Two-sided binomial: P(as uneven as wins : losses | each side equally likely); 1 where they never differ.
    """
    from scipy.stats import binomtest

    return float(binomtest(wins, wins + losses, 0.5).pvalue) if wins + losses else 1.0


def sign_flip(differences: Array, exactness: float = 0.0) -> float:
    """p-value of the paired permutation test (Fisher 1935): is the mean difference more than luck with the signs?

    If both are equally good, each pair's difference is as likely to have the other sign: p is the share of signs with
    |mean| as large as here. All 2^n signs are tried where they are few, else `RESAMPLES` of them, always the same.
    exactness: means that differ by less are equal (0: by 12 digits of the largest difference), as sums of tenths in
    another order differ in their last digits.
    """
    from scipy.stats import permutation_test

    check(differences, "differences")
    if len(differences) < 2 or not differences.any():
        return 1.0
    found = permutation_test(
        (differences,),
        lambda x, axis: x.mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, AT_ONCE // len(differences)),
        rng=seeding.numpy_generator(0, "sign flips"),
    )
    means, exactness = np.abs(found.null_distribution), exactness or EXACT * float(np.abs(differences).max())
    as_large, drawn = int((means >= abs(found.statistic) - exactness).sum()), len(means) < 2 ** len(differences)
    # Where signs are drawn, those that were observed count as one more draw.
    return float((as_large + drawn) / (len(means) + drawn))


def compare(metric: str, ours: Array, theirs: Array) -> Paired:
    """Two policies on the same episodes or problems, [n] and [n]: a paired bootstrap, and a paired test."""
    if ours.shape != theirs.shape or ours.ndim != 1:
        raise ValueError(f"scores that are not in pairs: {list(ours.shape)} and {list(theirs.shape)}")
    with np.errstate(invalid="ignore", over="ignore"):
        differences = ours - theirs
    check(differences, "differences")
    sizes = np.abs((ours, theirs))
    differences[np.abs(differences) <= np.maximum(EXACT * sizes.max(0), rounding(sizes))] = 0.0
    exactness = EXACT * float(sizes[:, differences != 0].max(initial=0.0))
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    low, high = bootstrap(differences)
    exact = metric == "accuracy" and bool(np.isin((ours, theirs), (0, 1)).all())  # a reward model may give ½ to a pair
    p = mcnemar(wins, losses) if exact else sign_flip(differences, exactness)
    difference = float(differences.mean())
    return {
        "difference": difference,
        "low": low,
        "high": high,
        "wins": wins,
        "ties": len(differences) - wins - losses,
        "losses": losses,
        "test": "exact McNemar" if exact else "sign-flip permutation",
        "p": p,
        "better": ("ours" if difference > 0 else "theirs") if p < SHOWN_BY else None,
    }


def verdict(found: Paired, ours: str, theirs: str) -> str:
    """The result of a comparison in one sentence, whose numbers are those of the better one: by how much it is."""
    p = p_value(found["p"])
    p = f"p {p}" if p.startswith("<") else f"p = {p}"
    one = found["wins"] + found["ties"] + found["losses"] == 1
    difference, low, high = found["difference"], found["low"], found["high"]
    if found["better"] == "theirs":
        difference, low, high = -difference, -high, -low
    within = "one pair" if one else f"{low + 0.0:.4g} to {high + 0.0:.4g}"  # 0 for -0
    if found["better"] is None:
        return f"no difference is shown: {difference:+.4g} for {ours} ({within}), {p}"
    return f"{ours if found['better'] == 'ours' else theirs} is better: {difference:+.4g} ({within}), {p}"


def p_value(p: float) -> str:
    """Three digits behind the point; one more where they would round it up to the limit of 0.05, below which it is."""
    if p < 0.001:
        return "< 0.001"
    return f"{min(p, 0.0499):.4f}" if p < SHOWN_BY and f"{p:.3f}" == "0.050" else f"{p:.3f}"


def form(numbers: Iterable[float]) -> str:
    """How a table writes its numbers: with three decimals, or with three digits where all are small."""
    return ".3g" if 0 < max(map(abs, numbers), default=0.0) < 0.01 else ".3f"


def within(low: float, high: float, episodes: int, as_form: str) -> str:
    """A 95 % interval in words. The bootstrap has none of one episode: both of its ends are the mean."""
    return "none" if episodes == 1 and low == high else f"{low:{as_form}} to {high:{as_form}}"
