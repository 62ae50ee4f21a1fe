"""What does not fit into memory is refused before it is allocated."""

from pathlib import Path

import psutil
import pytest

from rlkit import memory
from rlkit.errors import UserError


def test_what_does_not_fit_is_refused_with_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 3 * memory.GIB)
    memory.check(3 * memory.GIB, "algo.capacity=5", "give a smaller one")
    with pytest.raises(UserError, match=r"^algo.capacity=5 needs 4\.5 GB, 3\.0 GB are free: give a smaller one$"):
        memory.check(9 * memory.GIB // 2, "algo.capacity=5", "give a smaller one")


def test_a_size_beyond_reason_is_still_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: memory.GIB)
    with pytest.raises(UserError, match=r"needs 9e\+90 GB, 1\.0 GB are free"):
        memory.check(10**100, "it", "no")


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert memory.free() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free() > 2000


def test_what_a_container_has_read_of_files_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("2900\n")
    (tmp_path / "memory.stat").write_text("anon 100\nfile 2750\ninactive_file 2000\nactive_file 700\n")
    assert memory.free() == 2800
    for text in ("anon 100\n", "inactive_file many\n", "?\n"):
        (tmp_path / "memory.stat").write_text(text)
        assert memory.free() == 100


def test_the_limit_of_a_shell_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda which: (used + memory.GIB, resource.RLIM_INFINITY))
    assert 0 < memory.free() < 1.1 * memory.GIB
