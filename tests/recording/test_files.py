"""What a run writes stays in its folder, keeps the umask, and waits for nothing that never ends."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.resuming import REWARD

from rlkit import compare, evaluate, run, session
from rlkit.api import UserError
from rlkit.recording import checkpoint, files
from rlkit.recording.files import prepare_folder, tidy, write_atomically, write_folder
from rlkit.settings import config

TABLE = ["algo=q_learning", "env=frozenlake", "env.rows=4", "iterations=4", "evaluation_episodes=2", "threads=1"]
TABLE += ["validation_episodes=2"]
TEXT = ["algo=grpo", "env=gsm8k", "algo.group=2", "env.rows=2", "env.max_tokens=8", "env.train=8", "env.test=2"]
TEXT += [REWARD, "env.validation=2", "threads=1", "iterations=1", "evaluation_episodes=2"]
VICTIM = "not to be touched"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside the run folder."""
    (tmp_path / "victim").write_text(VICTIM)
    return tmp_path / "victim"


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr().err
    assert told.count("\n") == 1, told
    return told


def finished(folder: Path) -> Path:
    assert run.main([*TABLE, f"out={folder}"]) == 0
    return folder


@pytest.mark.parametrize(
    "name", ["config.yaml", "before.json", "metrics.jsonl", "completions.jsonl", "wandb.id", ".lock"]
)
def test_nothing_is_written_through_a_link_in_a_run_folder(
    name: str, tmp_path: Path, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path / "r")
    content = (folder / name).read_bytes() if (folder / name).is_file() else b""
    victim.write_bytes(content)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    capsys.readouterr()
    assert run.main([f"resume={folder}", "iterations=6"]) == 2
    assert f"{folder / name} is a link, and links in a folder that rlkit writes are refused" in one_line(capsys)
    assert victim.read_bytes() == content


@pytest.mark.parametrize("name", ["checkpoints", "model", "checkpoints/latest.safetensors"])
@pytest.mark.slow
def test_folders_and_checkpoints_are_no_links(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished(tmp_path / "r")
    if (folder / name).exists():
        shutil.move(folder / name, tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").mkdir()
    (folder / name).symlink_to(tmp_path / "elsewhere")
    capsys.readouterr()
    assert run.main([f"resume={folder}", "iterations=6"]) == 2
    assert "is a link" in one_line(capsys)


@pytest.mark.slow
def test_the_names_that_were_foreseen_lead_nowhere(tmp_path: Path, victim: Path) -> None:
    folder = finished(tmp_path / "r")
    names = [".config.yaml.new", ".summary.json.new", ".metrics.jsonl.new", f".probe-{os.getpid()}", ".model.new"]
    for name in [*names, "checkpoints/.new"]:
        (folder / name).symlink_to(victim)
    assert run.main([f"resume={folder}", "iterations=6"]) == 0
    assert victim.read_text() == VICTIM
    assert not [name for name in names if (folder / name).is_symlink()]


@pytest.mark.slow
def test_a_run_folder_may_itself_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert run.main([*TABLE, f"out={tmp_path / 'runs' / 'r'}"]) == 0
    (tmp_path / "here").symlink_to(tmp_path / "disk" / "r")
    assert run.main([f"resume={tmp_path / 'here'}", "iterations=6"]) == 0
    assert (tmp_path / "disk" / "r" / "summary.json").is_file()


@pytest.mark.slow
def test_what_killed_runs_left_goes_and_what_their_links_name_stays(tmp_path: Path, victim: Path) -> None:
    folder = finished(tmp_path / "r")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").write_text(VICTIM)
    (folder / ".model.0123.new").mkdir()
    (folder / ".model.0123.new" / "link").symlink_to(tmp_path / "other")
    (folder / ".model.4567.new").symlink_to(tmp_path / "other")
    (folder / ".summary.json.89ab.new").symlink_to(victim)
    (folder / "checkpoints" / ".latest.safetensors.0123.new").mkdir()
    tidy(folder)
    assert not list(folder.glob(".[ms]*.new")) and not list((folder / "checkpoints").glob(".*"))
    assert victim.read_text() == (tmp_path / "other" / "kept").read_text() == VICTIM


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no open file")
@pytest.mark.parametrize("nfs", [False, True])
def test_what_an_evaluation_writes_now_stays(nfs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no lock of the folder. What a killed one left goes, also on NFS."""
    fcntl = pytest.importorskip("fcntl")
    real = fcntl.flock

    def flock(handle: int, how: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(handle, how)

    if nfs:
        monkeypatch.setattr(fcntl, "flock", flock)
    names = ["evaluation-test.json", "completions-test.jsonl", "movie.gif"]
    for name in names:
        (tmp_path / f".{name}.0123.new").write_text("left")
        with files.replacing(tmp_path / name) as file:
            file.write(b"whole")
            tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert all((tmp_path / name).read_text() == "whole" for name in names)


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError("it cannot be drawn")])
def test_what_ends_before_it_is_written_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises((KeyboardInterrupt, UserError)), files.replacing(tmp_path / "movie.gif"):
        raise error
    assert not list(tmp_path.iterdir())


def test_a_umask_is_kept_everywhere(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert run.main([*TEXT, f"out={tmp_path / 'r'}"]) == 0
    finally:
        os.umask(before)
    there = [path for path in (tmp_path / "r").rglob("*") if path.name != ".lock"]
    assert {"model.safetensors", "latest.safetensors", "summary.json", "metrics.jsonl"} < {path.name for path in there}
    assert not [path for path in there if path.stat().st_mode & 0o077]


def test_another_umask_is_kept_too(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        write_folder(tmp_path / "model", lambda folder: (folder / "a").write_text("") and None)
        write_atomically(tmp_path / "b", "")
        checkpoint.save(tmp_path, {})
    finally:
        os.umask(before)
    for path in (tmp_path / "model" / "a", tmp_path / "b", tmp_path / "checkpoints" / "latest.safetensors"):
        assert path.stat().st_mode & 0o777 == 0o664, path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name")
@pytest.mark.parametrize("name", ["checkpoints/latest.safetensors", "before.json", "metrics.jsonl", "config.yaml"])
@pytest.mark.slow
def test_a_pipe_in_place_of_a_file_ends_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished(tmp_path / "r")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    capsys.readouterr()
    code = run.main([f"resume={folder}", "iterations=6"])
    one_line(capsys)
    assert code == (0 if name == "before.json" else 2)  # that one is measured again


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/stdin", "/proc/self/mem", "/"])
def test_a_device_is_no_checkpoint(target: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "latest.safetensors").symlink_to(target)
    with pytest.raises(UserError, match=r"latest\.safetensors is damaged"):
        checkpoint.load(tmp_path)


def test_a_checkpoint_larger_than_the_memory_is_not_read(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {})
    path = tmp_path / "checkpoints" / "latest.safetensors"
    os.truncate(path, 1 << 43)  # a hole: it takes no room on the disk
    with pytest.raises(UserError, match=r"latest\.safetensors needs 8,192\.0 GB, .* GB are free"):
        checkpoint.load(tmp_path)


WRONG = {"a name that is too long": "x" * 300, "a NUL": "a\0b"}


@pytest.mark.parametrize("what", WRONG)
def test_a_path_that_cannot_be_is_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="cannot write to the folder"):
        prepare_folder(tmp_path / WRONG[what])
    assert run.main([f"resume={tmp_path / WRONG[what]}"]) == 2
    one_line(capsys)


def test_the_home_of_nobody_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([*TABLE, "out=~nobody-of-that-name/r"]) == 2
    assert "cannot write to the folder ~nobody" in one_line(capsys)
    assert run.main(["resume=~nobody-of-that-name/r"]) == 2
    assert "is not a run folder" in one_line(capsys)


def test_a_folder_that_may_not_be_entered_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "stat", closed)
        with pytest.raises(UserError, match=r"config\.yaml cannot be read: no permission"):
            config.from_folder(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_that_cannot_lock_is_one_line(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    words = r"cannot be locked: (no locks available|operation not supported); give"
    with pytest.raises(UserError, match=words), session.locked(tmp_path, config.Given()):
        pytest.fail("it is not locked")


def test_a_folder_in_place_of_the_lock_is_one_line(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(UserError, match="cannot be locked: is a directory"), session.locked(tmp_path, config.Given()):
        pytest.fail("it is not locked")


def test_two_starts_of_one_folder_are_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second looks before the first begins, and gets the lock when the first has finished."""
    real, first = session.locked, []

    def late(folder: Path, given: config.Given) -> Any:
        if not first:
            first.append(True)
            assert run.main([*TABLE, f"out={tmp_path / 'r'}"]) == 0
        return real(folder, given)

    monkeypatch.setattr(session, "locked", late)
    assert run.main([*TABLE, "seed=1", f"out={tmp_path / 'r'}"]) == 2
    assert "is not empty" in one_line(capsys)
    assert '"seed": 0' in (tmp_path / "r" / "summary.json").read_text()


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    assert prepare_folder(tmp_path / "r") == tmp_path / "r" and not list((tmp_path / "r").iterdir())
    assert subprocess.run(["test", "-w", tmp_path / "r"]).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.slow
def test_a_name_that_is_no_text_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = os.fsdecode(bytes(tmp_path) + b"/r\xff")
    says = rf"the name {tmp_path}/r. is not UTF-8 text: rename it, or give another"
    for main, words in ((run.main, [*TABLE, f"out={odd}"]), (compare.main, [*TABLE, f"out={odd}"])):
        assert main(words) == 2 and re.search(says, one_line(capsys)) and not os.path.exists(odd)
    assert run.main([*TABLE, f"out={tmp_path / 'r'}"]) == 0
    os.rename(tmp_path / "r", odd)
    for main, words in ((run.main, [f"resume={odd}", "iterations=9"]), (evaluate.main, [odd])):
        capsys.readouterr()
        assert main(words) == 2 and re.search(says, one_line(capsys))


def test_a_python_that_reads_names_as_ascii_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert run.main([*TABLE, f"out={tmp_path}/r\udcc3\udcbcn"]) == 2
    assert re.search(r"names are read as ascii here, and .*/r..n is none: set PYTHONUTF8=1$", one_line(capsys).strip())


@pytest.mark.slow
@pytest.mark.parametrize("main, words", [(run.main, ["resume={}", "iterations=9"]), (evaluate.main, ["{}"]),
                                         (compare.main, ["{}", "out={}-c"])])  # fmt: skip
def test_a_folder_that_goes_while_it_is_read_is_one_line(
    main: Callable[[list[str]], int], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, folder, left = tmp_path / "kept", tmp_path / "r", [0]
    assert run.main([*TABLE, f"out={kept}"]) == 0

    def going(event: str, given: tuple[object, ...]) -> None:
        if left[0] and event in ("open", "os.listdir", "os.scandir") and str(given[0]).startswith(f"{folder}"):
            left[0] -= 1
            if not left[0]:
                shutil.rmtree(folder)

    sys.addaudithook(going)  # never removed: it does nothing once `left` is 0
    for number in range(1, 30):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)
        capsys.readouterr()
        left[0] = number
        code = main([word.format(folder) for word in words])
        assert code == 0 or "Traceback" not in capsys.readouterr().err
        if left[0]:
            break
    left[0] = 0


def test_a_pipe_in_place_of_a_folder_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model")
    with pytest.raises(UserError, match="a file is in the way"):
        files.write_folder(tmp_path / "model", lambda folder: (folder / "x").touch())
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
