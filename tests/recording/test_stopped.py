"""What stops a run from outside: a full disk, signals, a second process. One line each, and it goes on exactly."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.resuming import REWARD, Killed, cut, differences
from support.terminals import terminal
from support.words import last

from rlkit import loop, ranks, run
from rlkit.language import folders as model_files
from rlkit.recording import checkpoint, outcome
from rlkit.recording.log import Log
from rlkit.signals import LEAVE

TABLE = ["algo=q_learning", "env=frozenlake", "env.rows=4", "evaluation_episodes=2", "validation_episodes=2"]
TEXT = ["algo=grpo", "env=gsm8k", "algo.group=4", "env.rows=2", "env.max_tokens=16", "env.train=64", "env.test=4"]
TEXT += [REWARD, "env.validation=4", "threads=1", "iterations=3", "checkpoint_every=1"]
PLACES = [(os, "write"), (os, "fsync"), (os, "replace"), (model_files, "save_file"), (Path, "write_text")]


def full_from(step: int, patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the disk be full from the `step`-th write on; the count of those that were tried so far is returned."""
    tried = 0

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            nonlocal tried
            tried += 1
            if tried >= step:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **kwargs)

        return write

    for owner, name in PLACES:
        patch.setattr(owner, name, wrap(getattr(owner, name)))
    return lambda: tried


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        tried = full_from(10**9, patch)
        assert run.main([*TEXT, f"out={tmp_path / 'whole'}"]) == 0
    writes = tried()
    assert writes > 40
    for step in [1, *range(5, writes, writes // 7), writes - 10, writes - 2]:
        cut = tmp_path / str(step)
        capsys.readouterr()
        with monkeypatch.context() as patch:
            full_from(step, patch)
            assert run.main([*TEXT, f"out={cut}"]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "no space left on the disk" in told, told
        assert not (cut / "summary.json").exists()
        words = [f"resume={cut}", "trust=true"] if (cut / "config.yaml").is_file() else [*TEXT, f"out={cut}"]
        assert run.main(words) == 0
        assert not differences(tmp_path / "whole", cut)


@pytest.mark.parametrize("name", [name for name in LEAVE if name in signal.Signals.__members__])
@pytest.mark.slow
def test_a_signal_to_leave_leaves_a_checkpoint_and_says_how_to_go_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TABLE, "iterations=6", "evaluate_every=2"]
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0
    real, before = loop.walk, [signal.getsignal(signal.Signals[name]) for name in LEAVE]
    with monkeypatch.context() as patch:

        def walk(*args: Any) -> Any:
            walked.append(os.kill(os.getpid(), signal.Signals[name]) if len(walked) == 2 else None)
            return real(*args)

        walked: list[None] = []
        patch.setattr(loop, "walk", walk)
        assert run.main([*words, f"out={tmp_path / 'cut'}"]) == 1
    assert len(walked) == 3 and not (tmp_path / "cut" / "summary.json").exists()
    told = capsys.readouterr()
    command = f"python -m rlkit.run resume={tmp_path / 'cut'}"
    assert f"\nstopped at iteration 3; continue with:\n  {command}\n" in told.out and not told.err
    assert [signal.getsignal(signal.Signals[name]) for name in LEAVE] == before
    assert run.main([f"resume={tmp_path / 'cut'}"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_a_signal_while_the_end_is_measured_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = outcome.measure

    def measure(*args: Any) -> outcome.Evaluation:
        if args[-1] == "after":
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args)

    monkeypatch.setattr(outcome, "measure", measure)
    assert run.main([*TABLE, "iterations=2", f"out={tmp_path}"]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["finished"] is True


@pytest.mark.parametrize("words", [TABLE, TEXT], ids=["control", "text"])
@pytest.mark.slow
def test_a_signal_to_leave_does_not_wait_for_the_first_measurement(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may take longer than a cluster waits, and would then be repeated each time."""
    words = [*words, "iterations=2"] if words is TABLE else words
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0
    real = outcome.measure

    def measure(*args: Any) -> outcome.Evaluation:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(outcome, "measure", measure)
        assert run.main([*words, f"out={tmp_path / 'cut'}"]) == 1
    left = {path.name for path in (tmp_path / "cut").iterdir()} - {".lock"}
    assert left == {"config.yaml"} and "\nstopped at iteration 0; continue with:\n" in capsys.readouterr().out
    assert run.main([f"resume={tmp_path / 'cut'}", "trust=true"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")


def test_sigterm_in_the_instant_after_ctrl_c_leaves_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters kill soon after it: there is no time to measure."""
    real, walked = ranks.most, loop.walk

    def most(*stops: int) -> list[int]:
        agreed = real(*stops)
        if agreed == [True, 0]:
            os.kill(os.getpid(), signal.SIGTERM)
        return agreed

    def walk(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return walked(*args)

    monkeypatch.setattr(ranks, "most", most)
    monkeypatch.setattr(loop, "walk", walk)
    assert run.main([*TABLE, "iterations=6", f"out={tmp_path}"]) == 1
    assert not (tmp_path / "summary.json").exists() and checkpoint.resumable(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 1)])
def test_a_reader_that_leaves_with_the_signal_stops_nothing(
    number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends `tee`, too, in `rlkit run ... | tee log`."""
    real, (reader, writer) = loop.walk, os.pipe()

    def walk(*args: Any) -> Any:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        os.kill(os.getpid(), number)
        return real(*args)

    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(loop, "walk", walk)
        assert run.main([*TABLE, "iterations=6", f"out={tmp_path}"]) == code
    assert checkpoint.resumable(tmp_path) and (tmp_path / "summary.json").exists() == (code == 0)


posix = pytest.mark.skipif(os.name != "posix", reason="Windows has neither the signal nor such terminals")


@posix
@pytest.mark.slow
def test_what_nohup_ignores_stays_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loop.walk

    def walk(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGHUP)
        return real(*args)

    monkeypatch.setattr(loop, "walk", walk)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run.main([*TABLE, "iterations=3", f"out={tmp_path}"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert json.loads((tmp_path / "summary.json").read_text())["iterations"] == 3


@pytest.mark.slow
@posix
def test_a_lost_connection_leaves_a_checkpoint(tmp_path: Path) -> None:
    words = ["-m", "rlkit.run", *TABLE, "iterations=10000000", "evaluate_every=200"]
    with terminal(*words, f"out={tmp_path / 'r'}") as screen:
        screen.until("iteration 200 ")
        screen.close()
        assert screen.process.wait() == 1
    done = checkpoint.load(tmp_path / "r")["progress"]["iteration"]
    assert done >= 200 and not (tmp_path / "r" / "summary.json").exists()
    lines = (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["iteration"] <= done, "the newest iteration was finished"
    assert run.main([f"resume={tmp_path / 'r'}", f"iterations={done + 1}"]) == 0


@pytest.mark.slow
def test_one_process_writes_to_a_folder_and_its_death_frees_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [sys.executable, "-m", "rlkit.run", *TABLE, "iterations=10000000", "checkpoint_every=10"]
    words += ["evaluate_every=200", f"out={tmp_path}"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as first:
        try:
            assert first.stdout is not None
            while not (line := first.stdout.readline()).startswith("iteration 200 "):
                assert line, "it ended before its first checkpoint"
            assert run.main([f"resume={tmp_path}"]) == 2
            told = capsys.readouterr().err
            assert told.count("\n") == 1 and "is being written by another process" in told
        finally:
            first.kill()
    done = checkpoint.load(tmp_path)["progress"]["iteration"]
    assert run.main([f"resume={tmp_path}", f"iterations={done}"]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["iterations"] == done >= 100


@pytest.mark.slow
def test_a_start_that_was_killed_at_once_can_be_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", killed)  # config.yaml gets its name by it
        run.main([*TABLE, "iterations=2", f"out={tmp_path / 'r'}"])
    assert (tmp_path / "r").is_dir() and not (tmp_path / "r" / "config.yaml").exists()
    assert run.main([*TABLE, "iterations=2", f"out={tmp_path / 'r'}"]) == 0


def test_ctrl_c_twice_stops_at_once_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, written = [*TABLE, "iterations=6", "checkpoint_every=2"], Log.iteration
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0

    def twice(self: Log, iteration: int, *rest: Any) -> None:
        written(self, iteration, *rest)
        if iteration == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "iteration", twice)
        assert run.main([*words, f"out={tmp_path / 'cut'}"]) == 1
    assert run.main([f"resume={tmp_path / 'cut'}"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")


FAILING = """
from pathlib import Path

calls = 0

def vowels(prompts, completions, **columns):
    global calls
    calls += 1
    if calls == 3 and Path(__file__).with_name("broken").exists():
        raise RuntimeError("the judge is not there")
    return [sum(text.count(x) for x in "aeiou") / 10 for text in completions]
"""


@pytest.mark.slow
def test_a_reward_function_that_failed_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(FAILING)
    words = last(*(word for word in TEXT if word != "checkpoint_every=1"), f"env.reward={tmp_path / 'judge.py'}:vowels")
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0
    (tmp_path / "broken").touch()
    for every in (1, 2):
        cut = tmp_path / str(every)
        assert run.main([*words, f"checkpoint_every={every}", f"out={cut}"]) in (1, 2)
        (tmp_path / "broken").unlink()
        assert run.main([f"resume={cut}", "trust=true"]) == 0
        assert not differences(tmp_path / "whole", cut)
        (tmp_path / "broken").touch()


def test_a_run_whose_checkpoints_cannot_be_read_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise it would start again, and replace its metrics."""
    folder = tmp_path / "run"
    cut([*TABLE, "iterations=5", "checkpoint_every=1"], folder, monkeypatch)
    (folder / "checkpoints").rename(tmp_path / "aside")
    (folder / "checkpoints").write_text("")
    before = (folder / "metrics.jsonl").read_text()
    assert run.main([f"resume={folder}"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told == [f"rlkit: {folder / 'checkpoints'} cannot be read: a file is in the way"]
    assert (folder / "metrics.jsonl").read_text() == before != ""
