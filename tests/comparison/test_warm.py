"""Runs that are forked from a process which has imported everything: each is what a process of its own would be."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.resuming import differences

from rlkit.comparison import grid, warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone forks runs")
RUN = ["algo=q_learning", "env=gridworld", "iterations=3", "seed=1"]
LASTS = ["algo=ppo", "env=cartpole", "env_steps=100000000"]
OWN = """
import random
import numpy as np
import torch
print("drawn", np.random.rand(), random.random(), torch.rand(1).item())
raise ValueError("what follows does not matter")
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[warm.Warm]:
    forks = warm.Warm(grid.variables())
    yield forks
    forks.end()


def begin(forks: warm.Warm, words: list[str], folder: Path, name: str = "said") -> tuple[warm.Forked, Path]:
    said = folder / name
    with open(said, "ab") as console:
        return forks.start(words, folder, console.fileno()), said


def until(said: Path, text: str, run: warm.Forked) -> None:
    while text not in said.read_text():
        assert run.poll() is None, said.read_text()
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(0.05)


@pytest.mark.slow
def test_a_forked_run_is_that_of_its_own_process(forks: warm.Warm, tmp_path: Path) -> None:
    run, said = begin(forks, [*RUN, "out=forked"], tmp_path)
    assert run.wait() == 0 and run.poll() == 0
    alone = [sys.executable, "-m", "rlkit.run", *RUN, "out=alone"]
    told = subprocess.run(alone, cwd=tmp_path, env=grid.variables(), capture_output=True, text=True, check=True)
    assert differences(tmp_path / "forked", tmp_path / "alone") == []
    forked = [line for line in said.read_text().replace("forked", "alone").splitlines() if "steps/s" not in line]
    assert forked == [line for line in (told.stdout + told.stderr).splitlines() if "steps/s" not in line]


@pytest.mark.slow
def test_a_mistake_is_one_line_with_exit_code_2(forks: warm.Warm, tmp_path: Path) -> None:
    run, said = begin(forks, ["algo=pppo", "env=cartpole"], tmp_path)
    assert run.wait(60) == 2
    assert said.read_text().splitlines()[-1].startswith("rlkit: no algorithm 'pppo'")


@pytest.mark.slow
def test_each_run_draws_numbers_of_its_own(forks: warm.Warm, tmp_path: Path) -> None:
    """An environment that uses a global generator must not be the same in all runs."""
    (tmp_path / "own.py").write_text(OWN)
    drawn = []
    for name in ("one", "two"):
        run, said = begin(forks, ["algo=ppo", "env=own.py", f"out={name}"], tmp_path, name)
        assert run.wait(60) == 1
        drawn.append(next(line for line in said.read_text().splitlines() if line.startswith("drawn")).split()[1:])
    assert len(drawn[0]) == 3 and not set(drawn[0]) & set(drawn[1])


@pytest.mark.parametrize("how", ["terminate", "kill"])
@pytest.mark.slow
def test_a_run_is_stopped_as_any_process(how: str, forks: warm.Warm, tmp_path: Path) -> None:
    run, said = begin(forks, [*LASTS, "out=run"], tmp_path)
    until(said, "iteration 1 ", run)
    getattr(run, how)()
    assert run.wait() == (1 if how == "terminate" else -signal.SIGKILL)
    assert (tmp_path / "run" / "checkpoints").is_dir() == (how == "terminate")
    getattr(run, how)()  # it is gone: nobody else is hit


@pytest.mark.slow
def test_runs_go_on_when_nothing_asks_any_more(tmp_path: Path) -> None:
    forks = warm.Warm(grid.variables())
    run, said = begin(forks, [*LASTS, "out=run"], tmp_path)
    until(said, "iteration 1 ", run)
    forks.end()
    assert forks.process is not None and run.poll() is None and forks.process.poll() is None
    run.terminate()
    assert run.wait() == 1 and forks.process.wait() == 0


@pytest.mark.slow
def test_a_process_that_is_gone_leaves_its_runs_to_others(tmp_path: Path) -> None:
    with warm.kept(grid.variables()), open(tmp_path / "said", "ab") as console:
        run = warm.start([*LASTS, "out=run"], tmp_path, console.fileno())
        assert run is not None
        until(tmp_path / "said", "iteration 1 ", run)
        assert os.getpgid(run.pid) == run.pid  # a signal to the group of this process does not reach it
        parent = int(Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        os.kill(run.pid, signal.SIGKILL)
        assert warm.start(RUN, tmp_path, console.fileno()) is None


def test_nothing_is_forked_where_no_process_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with open(tmp_path / "said", "ab") as console:
        with warm.kept(grid.variables()):
            assert warm.start(RUN, tmp_path, console.fileno()) is None
        assert warm.start(RUN, tmp_path, console.fileno()) is None  # none is kept


@pytest.mark.parametrize(("path", "ran"), [([""], True), (["/usr", "."], True), (["link"], True), (["/usr"], False)])
def test_current_folder_is_on_path_of_run_where_it_is_on_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: list[str], ran: bool
) -> None:
    (tmp_path / "strange.py").write_text("print('ran')")
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", path)
    done = subprocess.run([*warm.python_m(), "strange"], capture_output=True, text=True, check=False)
    assert (done.stdout == "ran\n") == ran


@pytest.mark.slow
def test_a_run_after_an_edit_of_rlkit_imports_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork would run the files as they were, and summary.json would have the mark of the edited ones."""
    with warm.kept(grid.variables()), open(tmp_path / "said", "ab") as console:
        run = warm.start([*RUN, "out=before"], tmp_path, console.fileno())
        assert run is not None and run.wait() == 0
        monkeypatch.setattr(warm, "present", lambda: "0.5.0 (files of an edit)")
        assert warm.start([*RUN, "out=after"], tmp_path, console.fileno()) is None
