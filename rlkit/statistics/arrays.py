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

    Sums of rewards that cancel leave 1e-17 of tenths beside 0, and 4e-12 of ten thousands: 12 digits of the largest
    score. So beside a score of 1e6, which may have exploded, scores within 1e-6 of each other are ties: a win
    that rounding made is worse than a loss of one so small. Scores beyond ORDINARY say nothing here.
    """
    sizes = np.abs(x)
    return EXACT * float(sizes[sizes <= ORDINARY].max(initial=0.0))
