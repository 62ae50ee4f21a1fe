"""What TensorBoard shows is what metrics.jsonl holds, each point once, and no line of either can end a run badly."""

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.resuming import Killed, differences, logged, points

from rlkit import loop, run
from rlkit.api import UserError
from rlkit.recording import outcome, writers
from rlkit.recording.log import Log
from rlkit.recording.writers import Events, Reached, cut

TABLE = ["algo=q_learning", "env=frozenlake", "env.rows=4", "iterations=6", "evaluation_episodes=2", "threads=1"]
TABLE += ["validation_episodes=2"]


def killed_at(iteration: int, words: list[str]) -> None:
    """A run that is killed after the line of an iteration was written."""
    real = Log.iteration

    def killing(self: Log, number: int, *rest: Any) -> bool:
        stop = real(self, number, *rest)
        if number == iteration:
            raise Killed
        return stop

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Log, "iteration", killing)
        run.main(words)


@pytest.mark.parametrize("every", [2, 100])
@pytest.mark.parametrize("shift", [-(10**6), -1, 0, 10**6])
@pytest.mark.slow
def test_every_point_is_there_once_wherever_a_run_was_killed_and_whatever_the_clock_does(
    shift: int, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*TABLE, f"checkpoint_every={every}"]
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0
    killed_at(3, [*words, f"out={tmp_path / 'cut'}"])
    real = time.time
    monkeypatch.setattr(writers.time, "time", lambda: real() + shift)
    killed_at(5, [f"resume={tmp_path / 'cut'}"])
    monkeypatch.setattr(writers.time, "time", lambda: real() + 2 * shift)
    assert run.main([f"resume={tmp_path / 'cut'}"]) == 0
    for name in ("whole", "cut"):
        assert [point[:2] for point in points(tmp_path / name)] == logged(tmp_path / name), name
        assert len([path for path in (tmp_path / name).glob("events.*") if path.stat().st_size]) == 1
    assert not differences(tmp_path / "whole", tmp_path / "cut")


def test_an_open_tensorboard_does_not_show_a_point_twice(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def line(iteration: int) -> dict[str, float]:
        return {"iteration": iteration, "env_steps": 10 * iteration, "seconds": 0.5 * iteration, "train/loss": 0.25}

    first = Events(tmp_path, 100.0)
    for iteration in (1, 2, 3):
        first.add(line(iteration))
    first.close()
    reader = EventAccumulator(str(tmp_path)).Reload()
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line(1)) + "\n")
    second = Events(tmp_path, 100.0)
    second.add(line(2))
    second.close()
    assert [(x.step, x.wall_time) for x in reader.Reload().Scalars("train/loss")] == [(10, 100.5), (20, 101.0)]


def test_what_is_not_finite_is_the_same_point_before_and_after_a_resume(tmp_path: Path) -> None:
    with Log(tmp_path, {}, 1, "iterations", quiet=True) as log:
        log.iteration(1, 7, {"a": float("nan"), "b": float("inf"), "c": 1e300, "d": 0.1})
    before = points(tmp_path)
    with Log(tmp_path, {}, 1, "iterations", quiet=True, resumed_at=1):
        pass
    assert points(tmp_path) == before and len(before) == 4


STRANGE = [
    b"[]\n",
    b"3\n",
    b"null\n",
    b'"iteration"\n',
    b"{}\n",
    b'{"iteration": "1"}\n',
    b'{"iteration": null}\n',
    b'{"iteration": true}\n',
    b'{"iteration": 1.5}\n',
    b'{"iteration": [1]}\n',
    b"[" * 100_000 + b"\n",
    b'{"a":' * 100_000 + b"\n",
    b"\xff\xfe\n",
    b"\n",
    b'{"iteration": 1' + b"0" * 5000 + b"}\n",
    b'{"iteration": 2, "tor',
]


def test_lines_that_are_no_records_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = [b'{"iteration": %d, "env_steps": %d, "seconds": 0.5}\n' % (i, 10 * i) for i in (1, 2, 3)]
    path.write_bytes(good[0] + b"".join(STRANGE[:8]) + good[1] + b"".join(STRANGE[8:-1]) + good[2] + STRANGE[-1])
    assert cut(path, 2) == Reached(2, 20, 0.5)
    assert path.read_bytes() == good[0] + good[1]


@pytest.mark.parametrize("key", ["env_steps", "seconds", "train/loss"])
@pytest.mark.parametrize("value", ['"a"', "[1]", "null", "NaN", "1e400", "-1", "1" + "0" * 400, "{}", "true"])
def test_a_record_with_strange_values_ends_no_run(key: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1, "%s": %s}\n' % (key, value))  # noqa: UP031
    for _ in range(2):
        with Log(tmp_path, {}, 3, "iterations", quiet=True, resumed_at=1) as log:
            log.iteration(2, 20, {"train/loss": 0.5})
    assert ("train/loss", 20, "0.5") in points(tmp_path)


def test_a_file_without_an_end_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "LONGEST", 64)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"iteration": 1}\n' + b"x" * 1000 + b'\n{"iteration": 2}\n')
    assert cut(tmp_path / "metrics.jsonl", 5) == Reached(2)


@pytest.mark.timeout(20)
def test_a_file_of_zeros_larger_than_the_disk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "LONGEST", 1 << 16)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"iteration": 1}\n')
    os.truncate(tmp_path / "metrics.jsonl", 2**40)
    assert cut(tmp_path / "metrics.jsonl", 5) == Reached(1)
    assert (tmp_path / "metrics.jsonl").stat().st_size == 17


def test_what_needs_no_change_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"iteration": 1}\n')
    before = (tmp_path / "metrics.jsonl").stat()
    assert cut(tmp_path / "metrics.jsonl", 5) == Reached(1)
    assert (tmp_path / "metrics.jsonl").stat().st_ino == before.st_ino


@pytest.mark.slow
def test_metrics_that_are_gone_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([*TABLE, f"out={tmp_path}"]) == 0
    (tmp_path / "metrics.jsonl").unlink()
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", "iterations=9"]) == 0
    told = capsys.readouterr().err
    assert (
        told.count("\n") == 1 and "metrics.jsonl has no line up to iteration 6: what was logged there is lost" in told
    )
    assert [point[:2] for point in points(tmp_path)] == logged(tmp_path)


@pytest.mark.slow
def test_lines_that_are_lost_before_a_checkpoint_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([*TABLE, f"out={tmp_path}"]) == 0
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:2]))
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", "iterations=9"]) == 0
    told = capsys.readouterr().err
    assert "metrics.jsonl ends at iteration 2, and the run had logged iteration 6: what was logged between" in told
    assert told.count("\n") == 1
    assert run.main([f"resume={tmp_path}", "iterations=12"]) == 0
    assert "ends at" not in capsys.readouterr().err


def test_a_disk_that_cannot_keep_a_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = writers.Lines(tmp_path / "metrics.jsonl")
    file.sync()  # nothing was written yet
    file.add({"iteration": 1})
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(UserError, match=r"^cannot write .*metrics\.jsonl: no space left on the disk$"):
        file.sync()
    file.close()


def test_lines_are_on_the_disk_before_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real = loop.save
    monkeypatch.setattr(writers.File, "sync", lambda self: order.append(self.path.name))
    monkeypatch.setattr(loop, "save", lambda *given, **more: (order.append("checkpoint"), real(*given, **more)))
    assert run.main([*TABLE, f"out={tmp_path}", "evaluations=0"]) == 0
    assert order == ["metrics.jsonl", "completions.jsonl", "checkpoint"]


DAMAGED = ["", "[]", "{", "3", '{"before": 3}', '{"before": {}}', '{"before": {"mean": "1"}}', "[" * 100_000, "\0"]
HUGE = {"metric": "return", "mean": 10**400, "low": 0.0, "high": 1.0, "length": 1.0, "episodes": 2}
DAMAGED.append(json.dumps({"before": HUGE}))


@pytest.mark.parametrize("text", DAMAGED)
@pytest.mark.slow
def test_a_damaged_measurement_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([*TABLE, f"out={tmp_path}"]) == 0
    before = (tmp_path / "before.json").read_text()
    (tmp_path / "before.json").write_text(text)
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", "iterations=9"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "before.json is damaged: remove it, and resume measures the untouched" in told
    (tmp_path / "before.json").unlink()
    assert run.main([f"resume={tmp_path}", "iterations=9"]) == 0
    assert "before.json is gone: the untouched policy is measured again" in capsys.readouterr().err
    assert (tmp_path / "before.json").read_text() == before  # not a third time
    assert json.loads((tmp_path / "summary.json").read_text())["evaluation"]["before"] == json.loads(before)["before"]


@pytest.mark.slow
def test_a_measurement_of_another_kind_does_not_end_the_run_at_its_end(tmp_path: Path) -> None:
    assert run.main([*TABLE, f"out={tmp_path}"]) == 0
    found = json.loads((tmp_path / "before.json").read_text())
    found["before"]["kinds"] = {"sums": 0.5}
    (tmp_path / "before.json").write_text(json.dumps(found))
    assert run.main([f"resume={tmp_path}", "iterations=9"]) == 0


def test_a_measurement_of_many_kinds_is_read_as_it_was_written(tmp_path: Path) -> None:
    kinds = {f"the kind with the number {number}": 0.5 for number in range(30_000)}
    measured = {"metric": "accuracy", "mean": 0.5, "low": 0.4, "high": 0.6, "length": 9.0, "episodes": 30_000}
    (tmp_path / "before.json").write_text(json.dumps({"before": measured | {"kinds": kinds}}))
    assert outcome.before(tmp_path / "before.json", "accuracy")["before"]["kinds"] == kinds


@pytest.mark.slow
def test_a_full_disk_at_the_first_checkpoint_does_not_speak_of_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    words = [*TABLE, "checkpoint_every=2"]
    for calls, kept in ((0, "there is none before it: make room, and resume starts the run again"), (1, "is kept")):
        folder, real, seen = tmp_path / str(calls), loop.save, iter(range(9))
        with monkeypatch.context() as patch:
            from rlkit.recording import checkpoint

            write = checkpoint.save_file
            patch.setattr(
                checkpoint,
                "save_file",
                lambda *args: (full if next(seen) == calls else write)(*args),  # noqa: B023
            )
            assert run.main([*words, f"out={folder}"]) == 2 and real is loop.save
        assert kept in capsys.readouterr().err
        assert run.main([f"resume={folder}"]) == 0
    assert not differences(tmp_path / "0", tmp_path / "1")


def test_no_number_of_a_line_is_too_large_for_tensorboard(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a file: remove it"):
        (tmp_path / "metrics.jsonl").mkdir()
        cut(tmp_path / "metrics.jsonl", 1)


def test_half_of_a_character_in_a_name_ends_no_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1, "env_steps": 10, "train/\\ud800": 0.5}\n')
    for _ in range(2):  # the second one makes the events again
        with Log(tmp_path, {}, 3, "iterations", quiet=True, resumed_at=1) as log:
            log.iteration(2, 20, {"train/\udcff": 0.5})
    assert {("train/?", 10, "0.5"), ("train/?", 20, "0.5")} <= set(points(tmp_path))


@pytest.mark.slow
def test_what_has_another_name_elsewhere_keeps_what_it_holds(tmp_path: Path) -> None:
    theirs, folder = tmp_path / "theirs", tmp_path / "run"
    assert run.main([*TABLE, "checkpoint_every=1", f"out={folder}"]) == 0
    theirs.mkdir()
    for path in [folder / "metrics.jsonl", *folder.glob("events.*")]:
        os.link(path, theirs / path.name)
    before = {path: path.read_bytes() for path in theirs.iterdir()}
    assert run.main([f"resume={folder}", "iterations=8"]) == 0
    assert {path: path.read_bytes() for path in theirs.iterdir()} == before
    assert [point[:2] for point in points(folder)] == logged(folder)


@pytest.mark.parametrize("kind", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize("name", ["events.out.tfevents.1.x", "events.out.tfevents.9999999999.x", "summary.json"])
@pytest.mark.slow
def test_a_folder_or_a_pipe_in_place_of_a_file_is_taken_away(
    name: str, kind: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert run.main([*TABLE, f"out={folder}"]) == 0
    (folder / "summary.json").unlink()
    kind(folder / name)
    assert run.main([f"resume={folder}", "iterations=8"]) == 0
    assert [point[:2] for point in points(folder)] == logged(folder)
    assert (folder / "summary.json").is_file()
