"""Which cores a process may use, where a job or a container has fewer than the machine."""

import os
from pathlib import Path

import pytest

from rlkit import cores


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("150000 100000", 2), ("50000 100000", 1), ("900000 100000", 6), ("max 100000", 6), ("?", 6), ("1 0", 6)],
)
def test_the_job_and_the_quota_of_a_container_count(
    quota: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(6)}, raising=False)
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    assert cores.cores() == 6
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert cores.cores() == expected
