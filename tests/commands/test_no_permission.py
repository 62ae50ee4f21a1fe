"""What nobody may read is refused in one line. Nothing is forbidden to root, so the system's answer is replaced."""

import errno
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from rlkit import compare, run

TEXT = ["algo=grpo", "env=gsm8k", "iterations=1"]


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the permission to enter the folder, and to read a file of Python in it."""

    def checked(path: object) -> None:
        if isinstance(path, str | os.PathLike) and folder in Path(path).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    stat, get_data = os.stat, SourceFileLoader.get_data
    monkeypatch.setattr(os, "stat", lambda path, *args, **keys: (checked(path), stat(path, *args, **keys))[1])
    monkeypatch.setattr(SourceFileLoader, "get_data", lambda self, path: (checked(path), get_data(self, path))[1])


@pytest.mark.parametrize("words", [[*TEXT, "policy.model={}"], [*TEXT, "policy.model=tiny", "policy.adapter={}"]])
def test_a_folder_that_may_not_be_entered(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    close(tmp_path, monkeypatch)
    assert run.main([word.format(tmp_path) for word in words]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"rlkit: {tmp_path}/") and said.endswith(
        "cannot be read: no permission; fix that or give another"
    )


def test_a_run_folder_that_may_not_be_entered_is_left_out_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    close(run_folder, monkeypatch)
    assert compare.main([str(run_folder), f"out={tmp_path / 'compared'}"]) == 2
    assert f"left out: {run_folder / 'config.yaml'} cannot be read: no permission" in capsys.readouterr().err


def test_a_file_of_python_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, isfile = tmp_path / "own.py", os.path.isfile
    own.write_text("")
    monkeypatch.setattr(os.path, "isfile", lambda path: path == own or isfile(path))
    close(tmp_path, monkeypatch)
    assert run.main([f"algo={own}", "env=cartpole", "iterations=1"]) == 2
    assert f"rlkit: {own} cannot be read: no permission; fix that or give another" in capsys.readouterr().err
