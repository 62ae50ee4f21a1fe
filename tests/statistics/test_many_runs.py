"""Statistics of many runs need little memory, and are bit for bit those that are computed at once."""

import tracemalloc
from functools import partial

import numpy as np
import pytest

from rlkit import seeding
from rlkit.statistics import runs

DRAW = np.random.default_rng(0)
RAGGED = [DRAW.normal(size=n) for n in (2, 5, 9)], [DRAW.normal(size=n).round(1) for n in (3, 5, 4)]


def improvement(x: runs.Runs, y: runs.Runs) -> runs.Array:
    """All differences at once."""
    each = [(1 + np.sign(a[..., :, None] - b[..., None, :]).mean((-2, -1))) / 2 for a, b in zip(x, y, strict=True)]
    mean: runs.Array = np.mean(each, axis=0)
    return mean


def profile(x: runs.Runs, thresholds: runs.Array) -> runs.Array:
    mean: runs.Array = np.mean([(a > thresholds.reshape(-1, *[1] * a.ndim)).mean(-1) for a in x], axis=0)
    return mean


def interval(statistic: runs.Statistic, *groups: runs.Runs, repetitions: int) -> runs.Array:
    """All repetitions at once."""
    draw = seeding.numpy_generator(0, "stratified bootstrap")
    drawn = [[x[..., draw.integers(x.shape[-1], size=(repetitions, x.shape[-1]))] for x in given] for given in groups]
    bounds: runs.Array = np.quantile(statistic(*drawn), [0.025, 0.975], axis=-1)
    return bounds


@pytest.mark.parametrize("block", [1, 7, 1000, 10**9])
def test_intervals_in_blocks_are_those_of_one_piece(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BLOCK", block)
    x, y = RAGGED
    curve = DRAW.normal(size=(30, 6))  # [points, n]
    tau = np.linspace(-1, 1, 11)
    for found, expected in (
        (runs.interval(runs.iqm, x, repetitions=300), interval(runs.iqm, x, repetitions=300)),
        (runs.interval(runs.improvement, x, y, repetitions=300), interval(improvement, x, y, repetitions=300)),
        (runs.interval(runs.iqm, [curve], repetitions=300), interval(runs.iqm, [curve], repetitions=300)),
        (
            runs.interval(partial(runs.profile, thresholds=tau), x, repetitions=300),
            interval(partial(profile, thresholds=tau), x, repetitions=300),
        ),
    ):
        assert found is not None
        np.testing.assert_array_equal(np.array(found), expected)
    assert runs.improvement(x, y) == improvement(x, y)


@pytest.mark.slow
def test_two_hundred_seeds_take_less_than_a_hundred_megabytes() -> None:
    x, y = [DRAW.normal(size=200)], [DRAW.normal(size=200)]
    curve = [DRAW.normal(size=(100, 200))]
    tau = np.linspace(-2, 2, 201)
    tracemalloc.start()
    runs.interval(runs.improvement, x, y)
    runs.chance(x, y)
    runs.interval(runs.iqm, curve, repetitions=runs.BAND_REPETITIONS)
    runs.interval(partial(runs.profile, thresholds=tau), x, repetitions=runs.BAND_REPETITIONS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
