"""Intervals, pass@k, distributions and paired tests, against numbers worked by hand and by brute force."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from rlkit import seeding
from rlkit.api import Scores
from rlkit.statistics import episodes


def test_wilson_is_the_textbook_interval_and_stays_within_0_and_1():
    low, high = episodes.wilson(7, 10)  # statsmodels.stats.proportion.proportion_confint(7, 10, method="wilson")
    assert (low, high) == pytest.approx((0.396778, 0.892209), abs=1e-6)
    for n in (20, 200, 500, 512):
        assert episodes.wilson(0, n)[0] == 0 and episodes.wilson(n, n)[1] == 1


def test_the_bootstrap_covers_the_true_mean_about_95_times_in_100():
    draw = seeding.numpy_generator(1, "coverage")
    intervals = [episodes.bootstrap(draw.normal(3.0, 2.0, size=40), 400) for _ in range(200)]
    assert 0.89 <= np.mean([low <= 3.0 <= high for low, high in intervals]) <= 0.98


def test_the_bootstrap_draws_the_same_in_parts_as_at_once(monkeypatch):
    scores = seeding.numpy_generator(2, "scores").normal(size=37)
    at_once = episodes.bootstrap(scores)
    means = scores[seeding.numpy_generator(0, "bootstrap").integers(37, size=(2000, 37))].mean(1)
    assert at_once == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=1e-12)
    monkeypatch.setattr(episodes, "AT_ONCE", 37 * 300)  # 2,000 is not a multiple of 300
    assert episodes.bootstrap(scores) == at_once


@pytest.mark.parametrize(("n", "correct"), [(5, 0), (5, 2), (6, 5), (7, 7)])
def test_pass_at_k_is_the_share_of_all_subsets_that_hold_a_correct_answer(n, correct):
    answers = [True] * correct + [False] * (n - correct)
    for k in range(1, n + 1):
        brute = np.mean([any(chosen) for chosen in itertools.combinations(answers, k)])
        assert episodes.pass_at_k(n, correct, k) == pytest.approx(brute, abs=1e-15)


def test_pass_at_k_does_not_overflow_and_refuses_more_than_there_are_samples():
    found = episodes.pass_at_k(10_000, 3, 5_000)
    product = np.prod(1 - 5_000 / np.arange(10_000 - 3 + 1, 10_001))  # the paper's own stable form
    assert found == pytest.approx(1 - product, rel=1e-12)
    with pytest.raises(ValueError, match="1 to 4"):
        episodes.pass_at_k(4, 2, 5)


def test_a_distribution_is_told_by_its_quartiles_and_the_mean_of_its_middle_half():
    found = episodes.distribution(np.array([100.0, 1, 2, 3, 4, 5, 16, -100]))
    assert found["iqm"] == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert (found["min"], found["median"], found["max"]) == (-100, 3.5, 100)
    assert (found["q1"], found["q3"]) == (1.75, 7.75)
    assert found["std"] == pytest.approx(np.std([100, 1, 2, 3, 4, 5, 16, -100], ddof=1))
    assert episodes.distribution(np.array([7.0]))["std"] == 0 and json.dumps(found)


def test_a_histogram_counts_every_episode_in_plain_ascii():
    few = episodes.histogram(np.array([9.0, 9, 10, 9]))
    assert [line.split() for line in few] == [["9", "#" * 40, "3"], ["10", "#" * 14, "1"]]
    many = episodes.histogram(np.arange(100.0), bins=4, width=10)
    assert len(many) == 4 and all(line.isascii() and line.endswith("##########  25") for line in many)
    assert all(len(line) < 78 for line in episodes.histogram(np.linspace(-12345.6, 0, 50)))
    large = episodes.histogram(np.array([10001.0, 10002, 0.5]))
    assert [line.split()[0] for line in large] == ["0.5", "10001", "10002"]
    close = episodes.histogram(np.linspace(10500.0, 10510, 50), bins=5)
    assert [line.split()[:3] for line in close[:2]] == [["10500", "to", "10502"], ["10502", "to", "10504"]]


def test_a_histogram_has_one_line_for_sums_that_differ_by_rounding():
    sums = np.array([0.1 + 0.2, 0.3, 0.1 + 0.2 - 0.3, 0.0])
    assert len(np.unique(sums)) == 4
    for x in (sums, -sums):
        assert dict(line.split()[::2] for line in episodes.histogram(x)) == {"0": "2", f"{x[1]:g}": "2"}
    for scale in (1e-290, 1e-6, 1.0, 1e9, 1e300):
        assert [line.split()[-1] for line in episodes.histogram(sums * scale)] == ["2", "2"]
    assert len(episodes.histogram(np.array([0.0, 0]))) == 1
    assert len(episodes.histogram(np.array([1e9, 1e9 + 1]))) == 2


def test_sums_of_the_same_rewards_in_another_order_are_ties():
    ours, theirs = np.full(20, 0.1 + 0.2 + 0.3), np.full(20, 0.3 + 0.2 + 0.1)
    assert (ours > theirs).all()
    found = episodes.compare("return", ours, theirs)
    assert (found["wins"], found["ties"], found["losses"], found["better"]) == (0, 20, 0, None)
    assert episodes.compare("return", ours, theirs + 1e-9)["losses"] == 20
    rest = np.array([0.1 + 0.2 - 0.3] * 20 + [1.0])  # of sums that cancel out, rounding leaves something beside 0
    found = episodes.compare("return", rest, np.array([0.0] * 20 + [1.0]))
    assert (found["wins"], found["ties"], found["losses"], found["better"]) == (0, 21, 0, None)


@pytest.mark.parametrize("size", [0.0, 100.0, 10000.0, 100000.0])
def test_what_rounding_leaves_of_sums_of_any_size_is_a_tie(size):
    rest = (size + 0.1) + (2 * size + 0.2) - (3 * size + 0.3)
    large = 5 * size + 1
    found = episodes.compare("return", np.array([rest, large] * 20), np.array([0.0, large] * 20))
    assert rest != 0 and (found["wins"], found["ties"], found["better"]) == (0, 40, None)
    assert episodes.compare("return", np.array([1e-11 * large, large]), np.array([0.0, large]))["wins"] == 1


def test_mcnemar_is_the_binomial_tail_of_the_pairs_that_differ():
    tail = 2 * sum(math.comb(12, i) for i in range(3)) / 2**12
    assert episodes.mcnemar(10, 2) == pytest.approx(tail) == pytest.approx(0.0386, abs=1e-4)
    assert episodes.mcnemar(2, 10) == episodes.mcnemar(10, 2)
    assert episodes.mcnemar(0, 0) == episodes.mcnemar(4, 4) == 1


def test_the_sign_flip_test_tries_every_sign_where_the_pairs_are_few():
    differences = np.array([1.0, 2, -0.5, 3, 0.25])
    means = [np.mean(np.multiply(signs, differences)) for signs in itertools.product((1, -1), repeat=5)]
    extreme = np.mean(np.abs(means) >= abs(differences.mean()) - 1e-12)
    assert episodes.sign_flip(differences) == pytest.approx(extreme)
    assert episodes.sign_flip(-differences) == pytest.approx(extreme)
    assert episodes.sign_flip(np.zeros(9)) == episodes.sign_flip(np.array([5.0])) == 1


def test_an_episode_that_exploded_makes_no_ties_of_others():
    theirs = np.arange(20) / 10
    theirs[3] = -1e14
    found = episodes.compare("return", np.arange(20) / 10 + 0.5, theirs)
    assert (found["wins"], found["ties"], found["losses"]) == (20, 0, 0)
    both = np.arange(20) / 10
    both[3] = -1e14  # of both
    found = episodes.compare("return", np.where(both < 0, both, both + 0.5), both)
    assert (found["wins"], found["ties"], found["better"]) == (19, 1, "ours") and found["p"] < 0.001


@pytest.mark.parametrize("scale", [1e-15, 1e-6, 1.0, 100.0])
def test_where_most_episodes_of_both_exploded_the_others_keep_their_wins(scale):
    both = np.array([-1.8e19] * 6 + [-1.0, -2, -3, -4])
    sound = both > -10
    found = episodes.compare("return", *(np.where(sound, (both + gain) * scale, both) for gain in (0.5, 0.0)))
    assert (found["wins"], found["ties"], found["losses"]) == (4, 6, 0) and found["p"] == 1 / 8
    rest = np.where(sound, 0.1 + 0.2 - 0.3, both)
    rest[-1] = 1.0
    assert episodes.compare("return", rest, np.where(rest == 1, 1.0, np.where(sound, 0.0, both)))["ties"] == 10


def test_signs_whose_means_are_equal_but_for_the_last_digits_are_counted():
    """Returns in tenths: their differences are −1, 1, 1, 1, 1, 1, 1 and 2 tenths, and 16 of 256 signs are as far."""
    theirs = np.array([-414.2, -250.4, -333.3, -571.7, -642.1, -128.6, -923.9, -717.3])
    tenths = np.array([-1, 1, 1, 1, 1, 1, 1, 2])
    found = episodes.compare("return", np.round(theirs + tenths / 10, 1), theirs)
    assert found["p"] == 16 / 256 and found["better"] is None
    assert episodes.sign_flip(np.array([0.1, 0.2, -0.3, 0.3])) == 12 / 16
    many = np.repeat((0.1, -0.1), (60, 40))  # drawn: as far as 60 of 100 by the binomial distribution
    assert episodes.sign_flip(many) == pytest.approx(binomtest(60, 100).pvalue, abs=0.01)
    assert episodes.sign_flip(many) == episodes.sign_flip(-many)


def test_of_two_equal_policies_p_values_are_spread_evenly(monkeypatch):
    monkeypatch.setattr(episodes, "RESAMPLES", 199)
    draw = seeding.numpy_generator(0, "null")
    p = np.array([episodes.sign_flip(draw.normal(size=20)) for _ in range(300)])
    for level in (0.05, 0.25, 0.5, 0.75):
        assert abs((p <= level).mean() - level) < 4 * math.sqrt(level * (1 - level) / 300)


@pytest.mark.parametrize("metric", ["return", "accuracy"])
def test_a_policy_against_itself_differs_by_nothing(metric):
    scores = np.array([1.0, 0, 1, 1, 0])
    found = episodes.compare(metric, scores, scores)
    assert (found["difference"], found["low"], found["high"], found["p"], found["ties"]) == (0, 0, 0, 1, 5)
    assert episodes.verdict(found, "a", "b") == "no difference is shown: +0 for a (0 to 0), p = 1.000"


def test_a_comparison_is_paired_so_what_makes_episodes_differ_drops_out():
    luck = seeding.numpy_generator(0, "luck").normal(0, 100, size=50)
    ours, theirs = luck + 1.0 + 0.1 * np.sin(np.arange(50)), luck
    found = episodes.compare("return", ours, theirs)
    assert found["better"] == "ours" and found["p"] < 0.001 and found["wins"] == 50
    assert 0.95 < found["low"] < 1.0 < found["high"] < 1.05
    back = episodes.compare("return", theirs, ours)
    assert back["better"] == "theirs" and episodes.verdict(back, "a", "b").startswith("b is better: +1")


def test_the_numbers_of_a_result_are_those_of_the_better_one() -> None:
    better, worse = np.array([2.0, 2, 2, 2, 2, 3, 3, 0]), np.zeros(8)
    found = episodes.compare("return", better, worse)
    back = episodes.compare("return", worse, better)
    assert back["difference"] == -2 and back["low"] == -found["high"] and back["better"] == "theirs"
    said = f"+2 ({found['low']:.4g} to {found['high']:.4g}), p = 0.016"
    assert episodes.verdict(found, "a", "b") == f"a is better: {said}"
    assert episodes.verdict(back, "a", "b") == f"b is better: {said}"
    less = episodes.compare("return", np.array([0.0, 1]), np.array([1.0, 1]))
    assert episodes.verdict(less, "a", "b") == "no difference is shown: -0.5 for a (-1 to 0), p = 1.000"
    zero = episodes.verdict({**found, "better": "theirs", "high": 0.0}, "a", "b")
    assert "-0" not in zero and "(0 to" in zero


def test_pairs_that_a_reward_model_half_ranks_are_tested_by_how_much_they_differ():
    ours, theirs = np.array([1.0, 0.5, 1, 0]), np.array([0.5, 0.5, 0, 1])
    found = episodes.compare("accuracy", ours, theirs)
    assert (found["wins"], found["ties"], found["losses"]) == (2, 1, 1)
    assert found["p"] == episodes.sign_flip(ours - theirs) and found["test"] == "sign-flip permutation"
    many = episodes.compare("accuracy", np.repeat((1.0, 0.0), (40, 21)), np.repeat((0.5, 1.0), (40, 21)))
    assert (many["wins"], many["losses"]) == (40, 21) and many["better"] is None  # the mean is for the other side


def test_problems_that_are_right_or_wrong_are_tested_by_mcnemar():
    found = episodes.compare("accuracy", np.array([1.0, 1, 0, 1]), np.array([0.0, 0, 1, 1]))
    assert found["p"] == episodes.mcnemar(2, 1) and found["test"] == "exact McNemar"


def test_a_summary_has_an_interval_and_the_accuracy_of_each_kind():
    scores = Scores(torch.tensor([1.0, 0, 1, 1]), torch.tensor([3, 4, 5, 8]), ["a", "a", "b", "b"], ["x"] * 4)
    found = episodes.summarize("accuracy", scores, True)
    assert (found["mean"], found["length"], found["episodes"]) == (0.75, 5.0, 4)
    assert found["kinds"] == {"a": 0.5, "b": 1.0} and found["groups"] == {"x": 0.75}
    assert (found["low"], found["high"]) == episodes.wilson(3, 4)
    assert {type(found[key]) for key in ("mean", "low", "high", "length")} == {float}  # and not of NumPy
    scores.metrics = {"right": [1.0, None, 0.0, 1.0], "of nobody": [None] * 4, "words": [2.0, None, 3.0, 7.0]}
    beside = episodes.summarize("accuracy", scores, True)["metrics"]
    low, high = episodes.wilson(2, 3)
    assert beside.keys() == {"right", "words"} and beside["right"] == {
        "mean": 2 / 3,
        "low": low,
        "high": high,
        "episodes": 3,
    }
    low, high = episodes.bootstrap(np.array([2.0, 3.0, 7.0]))
    assert beside["words"] == {"mean": 4.0, "low": low, "high": high, "episodes": 3}


def test_kinds_that_are_numbers_stand_in_their_order() -> None:
    kinds = ["10", "b", "9", "-1", "2.5", "nan", "9"]
    found = episodes.summarize("accuracy", Scores(torch.ones(7), torch.ones(7), kinds), True)
    assert list(found["kinds"]) == ["-1", "2.5", "9", "10", "b", "nan"]


def test_one_episode_has_no_interval_and_small_numbers_keep_their_digits() -> None:
    assert episodes.within(3.0, 3.0, 1, ".3f") == "none"
    assert episodes.within(3.0, 3.0, 2, ".3f") == "3.000 to 3.000"
    assert episodes.within(0.0, 0.7935, 1, ".3f") == "0.000 to 0.793", "one problem has Wilson's"
    assert [episodes.form(x) for x in ([0.0], [0.5, -0.0001], [0.00012, -0.004], [])] == [".3f", ".3f", ".3g", ".3f"]
    alone = episodes.compare("return", np.array([2.0]), np.array([1.0]))
    assert episodes.verdict(alone, "a", "b") == "no difference is shown: +1 for a (one pair), p = 1.000"


def test_a_p_value_is_not_rounded_up_to_the_limit_below_which_it_is() -> None:
    values = (0.00099, 0.001, 0.0494, 0.0496, 0.049999, 0.05, 0.0504, 1.0)
    shown = ["< 0.001", "0.001", "0.049", "0.0496", "0.0499", "0.050", "0.050", "1.000"]
    assert [episodes.p_value(p) for p in values] == shown
