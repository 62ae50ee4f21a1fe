"""Input checks shared by all statistics."""

import numpy as np
from numpy.typing import NDArray

DIGITS = 12  # of a score: sums of the same rewards in another order differ behind them
EXACT = 10.0**-DIGITS
ORDINARY = 1e6  # a score beyond it says nothing of how small ones were rounded: it may have exploded


def check(x: NDArray[np.floating], what: str) -> None:
    """Refuse an empty array, and numbers that are nan or infinite: a statistic of them would be made up.

    Raises ValueError with their count and `what` they are.
    """
    if not x.size:
        raise ValueError(f"there are no {what}")
    if not np.isfinite(x).all():
        raise ValueError(f"{x.size - np.isfinite(x).sum()} of {x.size} {what} are not finite: nan or infinite")


def rounding(x: NDArray[np.floating]) -> float:
    """By how much scores may differ that are equal but for rounding, however small they are.

    Sums of rewards that cancel leave 1e-17 beside 0. It does not grow with large scores, whose own 12 digits count.
    """
    sizes = np.abs(x)
    return EXACT * min(1.0, float(sizes[sizes <= ORDINARY].max(initial=0.0)))
