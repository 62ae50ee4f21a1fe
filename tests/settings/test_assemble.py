"""What surrounds a run when it is put together: threads, and what a help page knows of an environment."""

import os

import pytest

from rlkit.settings.assemble import threads


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), ("4,2", 4), (" 2 ,1", 2), ("", 0), ("abc", 0), ("-1", 0), ("0", 0), ("9" * 99, 0)]
)
def test_openmp_threads_are_read_as_openmp_reads_them(
    value: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert threads("text") == (expected or os.cpu_count())
    assert threads("control") == 1
