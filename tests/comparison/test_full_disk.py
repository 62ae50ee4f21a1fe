"""A run whose last line a full disk did not take: no other line is taken for the reason that it was not finished."""

import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from rlkit.comparison import grid, view
from rlkit.comparison.grid import Job
from rlkit.errors import UserError


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A run that an earlier process began; the next one ends with exit code 2 and prints nothing."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexit 2\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    one = Job("works", "e", 0, tmp_path / "runs" / "works-e-s0", ("algo=works",), {}, tmp_path)
    one.folder.mkdir(parents=True)
    one.console.write_text(f"stopped at iteration 3; continue with:\n  {grid.LEFT}runs/works-e-s0\n")
    return one


def test_the_last_line_of_an_earlier_process_is_not_the_reason(silent: Job, tmp_path: Path) -> None:
    reason = grid.carry_out(silent, tmp_path / ".stop")
    assert reason == f"cannot write {silent.console}: the run's last line is missing (exit code 2), as on a full disk"


def test_a_disk_that_is_still_full_is_the_reason(silent: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> Path:
        raise UserError(f"cannot write to the folder {folder}: no space left on the disk")

    monkeypatch.setattr(grid, "prepare_folder", full)
    future: Future[str | None] = view.by_processes([silent], 1, tmp_path / ".stop")[0]
    assert view.outcome(future) == f"cannot write to the folder {tmp_path / 'runs'}: no space left on the disk"


def test_a_comparison_whose_folder_moves_makes_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    one = Job("works", "e", 0, old / "runs" / "works-e-s0", ("algo=works",), {}, tmp_path)
    one.folder.mkdir(parents=True)

    def moving(job: Job, stop: Path) -> tuple[int, str]:
        old.rename(new)
        return 2, "rlkit: the run's own line"

    monkeypatch.setattr(grid, "execute", moving)
    with pytest.raises(UserError, match=r"old is gone, moved or deleted during the run"):
        grid.carry_out(one, old / ".stop")
    assert not old.exists() and new.exists()


def test_a_comparison_begun_anew_in_its_place_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    one = Job("works", "e", 0, out / "runs" / "works-e-s0", ("algo=works",), {}, tmp_path)
    with grid.alone(Path("out")):
        out.rename(tmp_path / "away")
        with grid.alone(Path("anew")):
            (tmp_path / "anew").rename(out)
            with pytest.raises(UserError, match=r"out is another folder now, and the one before was moved or deleted"):
                grid.carry_out(one, out / ".stop")
