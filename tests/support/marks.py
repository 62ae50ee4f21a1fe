"""Which cases of a test are in the quick suite."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def slow_if(is_slow: Callable[[T], bool], cases: Iterable[T]) -> list[object]:
    """The cases for `parametrize`; those of which `is_slow` holds have the mark `slow`."""
    return [pytest.param(case, marks=pytest.mark.slow) if is_slow(case) else case for case in cases]


def slow_after(count: int, cases: Iterable[T]) -> list[object]:
    """The cases for `parametrize`; those after the first `count` have the mark `slow`."""
    return [pytest.param(case, marks=pytest.mark.slow) if i >= count else case for i, case in enumerate(cases)]
