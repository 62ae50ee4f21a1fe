"""Files and folders are written whole or not at all."""

import errno
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.resuming import Killed

from rlkit import run
from rlkit.api import UserError
from rlkit.recording import checkpoint, outcome
from rlkit.recording.files import no_link, tidy, write_atomically, write_folder
from rlkit.session import locked
from rlkit.settings.given import Given


def test_a_whole_file_or_none(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.json", "é")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "é"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_is_added_to_a_file_is_not_added_to_its_other_names(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept\n")
    (tmp_path / "other").chmod(0o600)
    os.link(tmp_path / "other", tmp_path / "a.txt")
    for told in ("more\n", "still more\n"):
        with open(tmp_path / "a.txt", "a", opener=no_link) as file:
            file.write(told)
    assert (tmp_path / "other").read_text() == "kept\n"
    assert (tmp_path / "a.txt").read_text() == "kept\nmore\nstill more\n"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o600


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    def write(text: str, fail: type[BaseException] | None, folder: Path) -> None:
        (folder / "a").write_text(text)
        if fail is OSError:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fail:
            raise fail
        (folder / "b").write_text(text)

    write_folder(tmp_path / "model", partial(write, "1", None))
    with pytest.raises(Killed):
        write_folder(tmp_path / "model", partial(write, "2", Killed))
    with pytest.raises(UserError, match=r"cannot write .*model: no space left on the disk; make room and resume"):
        write_folder(tmp_path / "model", partial(write, "2", OSError))
    assert (tmp_path / "model" / "a").read_text() == (tmp_path / "model" / "b").read_text() == "1"
    write_folder(tmp_path / "model", partial(write, "3", None))
    assert [path.read_text() for path in sorted((tmp_path / "model").iterdir())] == ["3", "3"]
    assert len(list(tmp_path.iterdir())) == 2  # what the killed one left
    tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_folder_stays_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may end while an old folder of many files is removed."""
    write_folder(tmp_path / "model", lambda folder: (folder / "a").write_text("1") and None)
    there = []
    remove = shutil.rmtree

    def removing(*args: object, **keys: object) -> None:
        there.append((tmp_path / "model" / "a").read_text())
        remove(*args, **keys)  # type: ignore[arg-type]

    monkeypatch.setattr(shutil, "rmtree", removing)
    write_folder(tmp_path / "model", lambda folder: (folder / "a").write_text("2") and None)
    assert there == ["2"] and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_of_the_same_content_is_there_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished run that is resumed writes its model again, and may be killed at any write."""
    write_folder(tmp_path / "model", lambda folder: (folder / "a").write_text("1") and None)

    def replace(*paths: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        write_folder(tmp_path / "model", lambda folder: (folder / "a").write_text("1") and None)
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
        with pytest.raises(Killed):
            write_folder(tmp_path / "model", lambda folder: (folder / "a").write_text("2") and None)
    write_folder(tmp_path / "model", lambda folder: (folder / "b").write_text("1") and None)
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["b"]


def test_a_folder_that_was_moved_or_deleted_is_not_made_anew(tmp_path: Path) -> None:
    """The new one would hold checkpoints and no config.yaml, and the run would end as if all were well."""
    folder = tmp_path / "run"
    folder.mkdir()
    checkpoint.save(folder, {"x": 1})
    folder.rename(tmp_path / "moved")
    with pytest.raises(UserError, match=r"run is gone, moved or deleted during the run: resume it where it is, "):
        checkpoint.save(folder, {"x": 2})
    assert not folder.exists()
    assert checkpoint.load(tmp_path / "moved") == {"x": 1}


def test_a_folder_that_is_moved_in_the_midst_of_a_save_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(checkpoint, "keep_umask", lambda path: folder.rename(tmp_path / "moved"))
    with pytest.raises(UserError, match=r"run is gone, moved or deleted during the run: resume it where it is, "):
        checkpoint.save(folder, {"x": 1})


def test_a_folder_that_another_run_has_by_now_is_left_alone(tmp_path: Path) -> None:
    """It was deleted, and a new run began in its place: both have a lock of their own."""
    folder = tmp_path / "run"
    folder.mkdir()
    with locked(folder, Given()):
        checkpoint.save(folder, {"x": 1})
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        (folder / ".lock").touch()
        with pytest.raises(UserError, match=r"run is another folder now, and the one before was moved or "):
            checkpoint.save(folder, {"x": 2})
        assert [path.name for path in folder.iterdir()] == [".lock"]
    with locked(folder, Given()):
        (folder / ".lock").unlink()  # alone: it looked like a leftover
        checkpoint.save(folder, {"x": 3})
    assert checkpoint.load(folder) == {"x": 3} and checkpoint.load(tmp_path / "moved") == {"x": 1}


def test_an_empty_folder_in_the_place_of_one_that_was_moved_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with locked(folder, Given()):
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        with pytest.raises(UserError, match=r"run is another folder now, and the one before was moved or deleted"):
            checkpoint.save(folder, {"x": 1})
        assert not list(folder.iterdir())


def test_the_result_is_not_written_into_the_folder_of_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, measure = tmp_path / "run", outcome.measure

    def slow(*given: Any) -> outcome.Evaluation:
        found = measure(*given)
        if given[-1] == "after":
            folder.rename(tmp_path / "moved")
            folder.mkdir()
            (folder / ".lock").touch()
        return found

    monkeypatch.setattr(outcome, "measure", slow)
    words = ["algo=q_learning", "env=gridworld", "iterations=2", "evaluation_episodes=2", f"out={folder}"]
    assert run.main(words) == 2
    assert "run is another folder now" in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} <= {".lock"}  # which older versions of filelock remove
