"""The statistics of a comparison: numbers worked by hand, rliable's numbers, and what an interval promises."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from rlkit.seeding import numpy_generator
from rlkit.statistics import runs as run_statistics


def runs(*rows: list[float]) -> list[np.ndarray]:
    return [np.array(row, dtype=float) for row in rows]


def test_iqm_is_the_mean_of_the_middle_half_of_all_runs_of_all_environments() -> None:
    assert run_statistics.iqm(runs([0, 100, 3, 4, 1, 2, 5, 6])) == 3.5  # 2, 3, 4, 5
    assert run_statistics.iqm(runs([10, 0], [1, 2, 3, 4, 5, 6])) == 3.5  # as many runs as there are in each
    assert run_statistics.iqm(runs([1, 2, 6])) == 3.0  # a quarter of three runs is none


def test_probability_of_improvement_counts_ties_half_and_environments_alike() -> None:
    assert run_statistics.improvement(runs([1, 2]), runs([2, 3])) == 0.125  # one tie of four pairs
    assert run_statistics.improvement(runs([1, 2], [5]), runs([2, 3], [1, 2, 3])) == 0.5625  # (1/8 + 1) / 2
    assert run_statistics.improvement(runs([2, 3], [1, 2, 3]), runs([1, 2], [5])) == 1 - 0.5625


def test_a_profile_is_the_fraction_of_runs_above_and_environments_count_alike() -> None:
    found = run_statistics.profile(runs([0.2, 0.8], [0.5, 0.5, 0.9]), np.array([0.0, 0.5, 0.9]))
    assert found == pytest.approx([1.0, (1 / 2 + 1 / 3) / 2, 0.0], abs=1e-15)


def test_normalised_scores_are_0_and_1_at_the_references_and_may_lie_outside() -> None:
    assert run_statistics.normalize(np.array([-200.0, -100.0, -75.0]), -200, -100).tolist() == [0.0, 1.0, 1.25]


def test_an_interval_of_three_runs_reaches_from_the_lowest_to_the_highest() -> None:
    """Each end is one resample of 27, more than the 2.5 % that an end may leave out."""
    low, high = run_statistics.interval(run_statistics.iqm, runs([5, 1, 3]))
    assert (low, high) == (1, 5)


def test_runs_are_resampled_within_their_environment() -> None:
    low, high = run_statistics.interval(run_statistics.iqm, runs([0, 0, 0, 0], [1, 1, 1, 1]))
    assert low == high == 0.5


def test_equal_scores_have_a_point_for_an_interval_and_a_single_run_has_none() -> None:
    assert run_statistics.interval(run_statistics.iqm, runs([500] * 5)) == (500, 500)
    assert run_statistics.interval(run_statistics.iqm, runs([1, 2, 3], [4])) is None
    assert run_statistics.interval(run_statistics.improvement, runs([1, 2]), runs([3])) is None


def test_the_same_scores_always_have_the_same_interval() -> None:
    scores = runs([3, 1, 4, 1, 5], [9, 2, 6])
    assert run_statistics.interval(run_statistics.iqm, scores) == run_statistics.interval(run_statistics.iqm, scores)


def test_chance_is_the_share_of_ways_to_deal_out_the_runs_that_differ_as_much() -> None:
    assert run_statistics.chance(runs([4, 5, 6]), runs([1, 2, 3])) == 2 / 20
    assert run_statistics.chance(runs([4, 5, 6], [4, 5, 6]), runs([1, 2, 3], [1, 2, 3])) == 2 / 400
    assert run_statistics.chance(runs([1, 2]), runs([1, 2])) == 1.0
    # Of 16 pairs 15 are won: as many or more in 2 of 70 ways, and as few or fewer in 2.
    assert run_statistics.chance(runs([4, 6, 7, 8]), runs([1, 2, 3, 5])) == pytest.approx(4 / 70)
    assert run_statistics.chance(runs([40]), runs(list(range(39)))) == 0.05  # which is not below 0.05


@pytest.mark.parametrize("trial", range(20))
def test_chance_counts_every_way_with_ties_and_over_environments(trial: int) -> None:
    draw = np.random.default_rng(trial)
    x, y = ([draw.integers(6, size=draw.integers(1, 5)).astype(float) for _ in range(1 + trial % 3)] for _ in range(2))
    shared_out = [
        [
            run_statistics.improvement([np.delete(pool, others)], [pool[others]]) - 0.5
            for others in map(list, combinations(range(len(pool)), len(b)))
        ]
        for b, pool in zip(y, map(np.concatenate, zip(x, y, strict=True)), strict=True)
    ]
    differences = np.abs([np.mean(each) for each in product(*shared_out)])
    expected = (differences >= abs(run_statistics.improvement(x, y) - 0.5) - 1e-9).mean()
    assert run_statistics.chance(x, y) == pytest.approx(expected)
    assert run_statistics.chance(y, x) == pytest.approx(expected)


def test_chance_agrees_with_the_exact_test_of_mann_and_whitney() -> None:
    draw = np.random.default_rng(0)
    for n, m in ((5, 5), (3, 8), (20, 30)):
        x, y = draw.normal(size=n), draw.normal(size=m) + 0.5
        expected = mannwhitneyu(x, y, method="exact").pvalue
        assert run_statistics.chance([x], [y]) == pytest.approx(expected)
        assert run_statistics.drawn_chance([x], [y]) == pytest.approx(expected, abs=0.025)  # five standard errors


def test_a_verdict_depends_neither_on_who_is_first_nor_on_which_seed_has_which_score() -> None:
    """Exactly 14 of 252; of 10,000 draws the share was 0.0496 for one order, and 0.0571 for the other."""
    x, y = [0, 1, 2, 3, 7], [4, 5, 6, 8, 9]
    for a, b in ((x, y), (y, x), (x[::-1], y)):
        assert run_statistics.chance(runs(a), runs(b)) == pytest.approx(14 / 252)
    draw = np.random.default_rng(0)
    unequal = [draw.normal(size=n) for n in (7, 9)], [draw.normal(size=n) for n in (11, 13)]
    assert run_statistics.chance(*unequal) != run_statistics.drawn_chance(*unequal)
    many = [draw.normal(size=n) for n in (9, 140)], [draw.normal(size=n) for n in (11, 150)]  # too many to count
    assert run_statistics.chance(*many) == run_statistics.drawn_chance(*many)
    for x, y in (unequal, many):
        of_all = {
            run_statistics.chance(x, y),
            run_statistics.chance(y, x),
            run_statistics.chance(x[::-1], y[::-1]),
            run_statistics.chance([a[::-1] for a in x], y),
        }
        assert len(of_all) == 1


def test_unequal_numbers_of_runs_in_several_environments_are_counted() -> None:
    """By the distributions in each environment, combined as fractions."""
    draw = np.random.default_rng(0)
    x, y = ([draw.normal(size=n) + shift for n in sizes] for sizes, shift in (((3, 4, 7), 0.5), ((5, 6, 4), 0)))
    combined = {Fraction(0): 1.0}
    for a, b in zip(x, y, strict=True):
        pairs, after = len(a) * len(b), Counter[Fraction]()
        for (gone, p), (i, share) in product(combined.items(), enumerate(run_statistics.shared_out(a, b))):
            after[gone + Fraction(i - pairs, pairs)] += p * float(share)
        combined = dict(after)
    found = sum(Fraction(int(np.sign(a[:, None] - b).sum()), a.size * b.size) for a, b in zip(x, y, strict=True))
    expected = sum(p for difference, p in combined.items() if abs(difference) >= abs(found))
    assert run_statistics.chance(x, y) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bounds", "chance", "said"),
    [
        ((0.6, 1.0), 0.01, "better"),
        ((0.0, 0.4), 0.01, "worse"),
        ((0.5, 0.9), 0.01, "not separated"),  # the interval holds 0.5
        ((0.1, 0.5), 0.01, "not separated"),
        ((1.0, 1.0), 0.10, "not separated"),  # three against three
        (None, 0.01, "too few runs"),
    ],
)
def test_two_algorithms_are_separated_by_their_interval_and_not_by_chance(bounds, chance, said) -> None:
    assert run_statistics.verdict(bounds, chance) == said


def test_curves_hold_their_value_until_the_next_and_go_as_far_as_all_reach() -> None:
    first = np.array([0.0, 4.0, 10.0]), np.array([1.0, 2.0, 3.0])
    second = np.array([2.0, 6.0]), np.array([10.0, 20.0])
    grid, values = run_statistics.on_a_grid([first, second], points=5)
    assert grid.tolist() == [2, 3, 4, 5, 6]
    assert values.T.tolist() == [[1, 1, 2, 2, 2], [10, 10, 10, 10, 20]]
    grid, values = run_statistics.on_a_grid([first, second], to_the_last=True, points=3)
    assert grid.tolist() == [2, 6, 10] and values.T.tolist() == [[1, 2, 3], [10, 20, 20]]
    assert run_statistics.on_a_grid([(np.array([0.0, 1.0]), np.zeros(2)), (np.array([2.0, 3.0]), np.zeros(2))]) is None


def test_a_statistic_of_resamples_is_that_of_each_resample() -> None:
    draw = numpy_generator(0, "test")
    x, y, tau = draw.normal(size=(2, 4, 5)), draw.normal(size=(2, 4, 3)), np.linspace(-1, 1, 7)
    for r in range(4):
        assert run_statistics.iqm(list(x))[r] == pytest.approx(run_statistics.iqm(list(x[:, r])))
        assert run_statistics.improvement(list(x), list(y))[r] == run_statistics.improvement(
            list(x[:, r]), list(y[:, r])
        )
        assert (
            run_statistics.profile(list(x), tau)[:, r].tolist() == run_statistics.profile(list(x[:, r]), tau).tolist()
        )


@pytest.mark.parametrize(("seeds", "envs"), [(1, 1), (3, 2), (5, 4), (10, 7)])
@pytest.mark.parametrize("ties", [False, True])
def test_the_numbers_are_those_of_rliable(seeds: int, envs: int, ties: bool) -> None:
    metrics = pytest.importorskip("rliable.metrics")
    draw = numpy_generator(seeds, "test", envs)
    x, y = draw.normal(size=(2, seeds, envs))
    if ties:
        x, y = x.round(), y.round()
    assert run_statistics.iqm(list(x.T)) == pytest.approx(metrics.aggregate_iqm(x), abs=1e-12)
    theirs = metrics.probability_of_improvement(x, y)
    assert run_statistics.improvement(list(x.T), list(y.T)) == pytest.approx(theirs, abs=1e-12)


def rliable_library():
    pytest.importorskip("rliable")
    try:
        from rliable import library
    except TypeError as error:  # arch 7, which it needs, cannot be imported beside pandas 3
        pytest.skip(f"rliable cannot be imported here, pandas<3 helps: {error}")
    return library


def test_profiles_are_those_of_rliable() -> None:
    library = rliable_library()
    x, tau = numpy_generator(0, "test").normal(size=(5, 3)), np.linspace(-2, 2, 41)
    assert run_statistics.profile(list(x.T), tau) == pytest.approx(library.score_distributions(x, tau), abs=1e-12)


@pytest.mark.slow
def test_intervals_are_those_of_rliable_within_monte_carlo_error() -> None:
    """Either end is a quantile of random repetitions: its standard error is √(q(1−q)/R) / density.

    Of a normal distribution at q = 0.025 that is 0.085 σ for rliable's 1,000 repetitions, 0.027 σ for our 10,000, both
    0.089 σ; the width is 3.92 σ, so five standard errors are 11.3 % of it.
    """
    library = rliable_library()
    metrics = pytest.importorskip("rliable.metrics")
    x, y = numpy_generator(1, "test").normal(size=(2, 8, 2))
    cases = [
        (run_statistics.iqm, metrics.aggregate_iqm, [x]),
        (run_statistics.improvement, metrics.probability_of_improvement, [x, y]),
    ]
    for ours, theirs, groups in cases:
        given = {"a": groups[0] if len(groups) == 1 else groups}
        _, bounds = library.get_interval_estimates(given, lambda *s, f=theirs: np.array([f(*s)]), reps=1000)
        low, high = run_statistics.interval(ours, *[list(group.T) for group in groups])
        assert [low, high] == pytest.approx(bounds["a"].ravel().tolist(), abs=0.113 * (high - low))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "expected"), [(3, 0.75), (5, 0.89), (10, 0.93)])
def test_intervals_cover_as_often_as_the_page_says(n: int, expected: float) -> None:
    """Of normal scores; 1,000 trials have a standard error of at most 0.014."""
    draw, held = numpy_generator(0, "coverage"), 0
    for trial in range(1000):
        low, high = run_statistics.interval(run_statistics.iqm, [draw.normal(size=n)], repetitions=1000, seed=trial)
        held += bool(low <= 0 <= high)
    assert held / 1000 == pytest.approx(expected, abs=0.042)


@pytest.mark.slow
def test_equal_algorithms_are_seldom_called_separated() -> None:
    """In 5 % of cases at most, by the permutation test: here of 400, plus three standard errors of 0.011."""
    draw, separated = numpy_generator(0, "equal"), 0
    for trial in range(400):
        x, y = ([draw.normal(size=5)], [draw.normal(size=5)])
        bounds = run_statistics.interval(run_statistics.improvement, x, y, repetitions=1000, seed=trial)
        said = run_statistics.verdict(bounds, run_statistics.chance(x, y))
        separated += said in ("better", "worse")
    assert separated / 400 <= 0.05 + 0.033
