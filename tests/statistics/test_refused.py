"""Numbers that are none, and none at all: every statistic refuses them by name, and takes a single one."""

from typing import Any

import numpy as np
import pytest
import torch

from rlkit import statistics
from rlkit.api import Scores
from rlkit.statistics import runs

GOOD = np.array([1.0, 2.0, 3.0])
ARRAYS: dict[str, Any] = {
    "bootstrap": statistics.bootstrap,
    "distribution": statistics.distribution,
    "histogram": statistics.histogram,
    "sign_flip": statistics.sign_flip,
    "compare": lambda x: statistics.compare("return", x, np.zeros(len(x))),
    "compare theirs": lambda x: statistics.compare("accuracy", np.zeros(len(x)), x),
    "summarize": lambda x: statistics.summarize("return", scores(x), True),
    "summarize accuracy": lambda x: statistics.summarize("accuracy", scores(x), True),
    "iqm": lambda x: runs.iqm([GOOD, x]),
    "improvement": lambda x: runs.improvement([GOOD, x], [GOOD, GOOD]),
    "improvement on": lambda x: runs.improvement([GOOD], [x]),
    "profile": lambda x: runs.profile([x], GOOD),
    "interval": lambda x: runs.interval(runs.iqm, [GOOD, x], repetitions=9),
    "chance": lambda x: runs.chance([GOOD], [x]),
}


def scores(x: Any) -> Scores:
    return Scores(torch.from_numpy(np.asarray(x)), torch.ones(len(x)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", list(ARRAYS))
def test_a_number_that_is_none_is_refused(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=r"1 of 3 .* not finite"):
        ARRAYS[name](np.array([1.0, bad, 0.0]))


@pytest.mark.parametrize("name", list(ARRAYS))
def test_no_numbers_at_all_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="there are no "):
        ARRAYS[name](np.array([]))


@pytest.mark.parametrize("name", list(ARRAYS))
@pytest.mark.filterwarnings("error")
def test_a_single_number_is_enough(name: str) -> None:
    ARRAYS[name](np.array([1.0]))


def test_pairs_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pairs: \[3\] and \[2\]"):
        statistics.compare("return", GOOD, GOOD[:2])


@pytest.mark.parametrize("given", [(0, 0), (-1, 3), (4, 3), (np.nan, 3)])
def test_a_proportion_of_nothing_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=f"no proportion: {given[0]} of {given[1]}"):
        statistics.wilson(*given)


@pytest.mark.parametrize("given", [(3, 4, 1), (3, -1, 1), (3, 1, 4), (0, 0, 0)])
def test_counts_that_cannot_be_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="cannot be estimated from"):
        statistics.pass_at_k(*given)


def test_references_that_do_not_tell_low_from_high_are_refused() -> None:
    for low, high in ((1.0, 1.0), (np.nan, 1.0), (0.0, np.inf)):
        with pytest.raises(ValueError, match="references"):
            runs.normalize(0.5, low, high)


def test_differences_too_large_for_a_number_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        statistics.compare("return", np.array([1.7e308, 0.0]), np.array([-1.7e308, 0.0]))
