"""Input checks shared by all statistics."""

import numpy as np
from numpy.typing import NDArray

DIGITS = 12  # of a score: sums of the same rewards in another order differ behind them
EXACT = 10.0**-DIGITS


def check(x: NDArray[np.floating], what: str) -> None:
    """Refuse an empty array, and numbers that are nan or infinite: a statistic of them would be made up.

    Raises ValueError with their count and `what` they are.
    """
    if not x.size:
        raise ValueError(f"there are no {what}")
    if not np.isfinite(x).all():
        raise ValueError(f"{x.size - np.isfinite(x).sum()} of {x.size} {what} are not finite: nan or infinite")


def rounding(x: NDArray[np.floating]) -> float:
    """By how much scores may differ that are equal but for rounding, whatever their size.

    Sums of rewards that cancel leave 1e-17 beside 0. A score that exploded says nothing of how others were rounded.
    """
    sizes = np.sort(np.abs(x), axis=None)
    return EXACT * min(float(sizes[-1]), max(1.0, float(sizes[len(sizes) // 2]))) if sizes.size else 0.0
