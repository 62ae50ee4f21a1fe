"""Comparisons depend neither on the order of rows, seeds and environments, nor on the last digit of a score."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.compared import grid, run

from rlkit.comparison import words
from rlkit.comparison.results import band, compute, sorted_runs
from rlkit.statistics import runs


def test_no_number_depends_on_the_order_of_seeds_and_environments() -> None:
    draw = np.random.default_rng(0)
    cells = {f"{algo}_{env}": draw.normal(size=n).tolist() for algo, n in (("a", 4), ("b", 5)) for env in "xyz"}
    one = compute(grid(**cells))
    other = compute(grid(**{name: cells[name][::-1] for name in reversed(cells)}))
    assert one["overall"] == other["overall"] and one["algos"] == other["algos"]
    for mine, theirs in zip(one["improvement"], other["improvement"], strict=True):
        assert {**mine, "envs": {}} == {**theirs, "envs": {}}
    assert one["profiles"] == other["profiles"]


def test_no_interval_depends_on_which_algorithm_is_given_first() -> None:
    """No environment is shared by all three, so they stand in the order of the command."""
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=5).tolist(), draw.normal(1.0, size=5).tolist()
    one, other = compute(grid(a_x=a, b_x=b, c_y=[0.0])), compute(grid(b_x=b, a_x=a, c_y=[0.0]))
    (first, *_), (second, *_) = one["improvement"], other["improvement"]
    assert (first["x"], second["x"]) == ("a", "b") and first["low"] != 1 - (first["high"] or 0.0)
    mirror = [1 - (second[key] or 0.0) for key in ("value", "high", "low")]
    assert [first["value"], first["low"], first["high"]] == pytest.approx(mirror, abs=1e-15)


def test_means_of_the_same_returns_in_another_order_are_ties() -> None:
    returns = [0.0, 0.1, 0.2, 0.3] * 25
    mean, other = float(np.mean(sorted(returns))), float(np.mean(returns))
    assert mean != other
    (found,) = compute(grid(a_x=[mean, 1.0], b_x=[other, 1.0]))["improvement"]
    assert found["value"] == 0.5 and found["chance"] == 1
    result = compute(grid(a_x=[mean, mean], b_x=[other, other]))
    assert words.finding(result).startswith("a and b have the same, highest interquartile mean")


@pytest.mark.parametrize("bad", [-1e9, -1e14, -1e300])
def test_a_run_that_exploded_makes_no_ties_of_others(bad: float) -> None:
    x, y = [float(i) for i in range(1, 11)], [*(i / 10 for i in range(1, 10)), bad]
    (found,) = compute(grid(a_x=x, b_x=y))["improvement"]
    assert (
        found["value"] == 1.0
        and found["chance"] == pytest.approx(2 / math.comb(20, 10))
        and found["verdict"] == "better"
    )


@pytest.mark.parametrize("scale", [1e-15, 1e-6, 1.0, 100.0, 1e9])
@pytest.mark.parametrize("exploded", [1, 5, 8])
def test_however_many_runs_exploded_the_others_keep_their_wins_and_their_scores(exploded: int, scale: float) -> None:
    x, y = ([i * scale for i in ends] for ends in ((-1, -2, -3, -4, -5), (-1.5, -2.5, -3.5, -4.5, -5.5)))
    bad = [-1.8e19 - 1e18 * i for i in range(exploded)]
    found = compute(grid(a_x=x, b_x=y, c_x=bad, d_x=bad))
    (pair,) = (p for p in found["improvement"] if {p["x"], p["y"]} == {"a", "b"})
    assert (pair["value"] if pair["x"] == "a" else 1 - (pair["value"] or 0)) == 15 / 25
    assert [found["envs"]["x"]["algos"][algo]["scores"] for algo in "abc"] == [x, y, bad]
    few = compute(grid(a_x=x[: 10 - exploded], b_x=bad))["improvement"][0]
    assert few["value"] == (1.0 if few["x"] == "a" else 0.0)


def test_what_rounding_leaves_beside_0_is_a_tie_and_is_shown_as_it_is() -> None:
    left = 0.1 + 0.2 - 0.3
    for others in ([1.0, -1.0], [100.0, -1.8e19]):
        found = compute(grid(a_x=[left, *others], b_x=[0.0, *others]))
        assert found["improvement"][0]["value"] == 0.5
        assert found["envs"]["x"]["algos"]["a"]["scores"] == [left, *others]
    (small,) = compute(grid(a_x=[left, 2 * left], b_x=[0.0, 0.0]))["improvement"]
    assert small["value"] == (1.0 if small["x"] == "a" else 0.0), "all scores are of this size"


def test_scores_one_rounding_apart_are_no_range() -> None:
    first, last = 0.3, 0.1 + 0.2
    assert first < last
    made = [run(algo, "x", seed, last, before=first, reference=None) for algo in "ab" for seed in range(3)]
    found = compute(made)
    assert found["envs"]["x"]["reference"] is None and not found["shared"]
    assert compute([replace(r, before=0.29) for r in made])["shared"] == ["x"]


def test_no_band_of_a_curve_depends_on_the_order_of_runs() -> None:
    values = np.random.default_rng(0).normal(size=(5, 7))
    orders = (values, values[:, ::-1], values[:, [3, 1, 2, 0, 6, 5, 4]])
    bands = [band(runs.iqm, sorted_runs([given])) for given in orders]
    assert bands[0] == bands[1] == bands[2]
