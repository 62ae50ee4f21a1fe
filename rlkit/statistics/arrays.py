"""Input checks shared by all statistics."""

import numpy as np
from numpy.typing import NDArray


def check(x: NDArray[np.floating], what: str) -> None:
    """Refuse an empty array, and numbers that are nan or infinite: a statistic of them would be made up.

    Raises ValueError with their count and `what` they are.
    """
    if not x.size:
        raise ValueError(f"there are no {what}")
    if not np.isfinite(x).all():
        raise ValueError(f"{x.size - np.isfinite(x).sum()} of {x.size} {what} are not finite: nan or infinite")
