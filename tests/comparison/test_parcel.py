"""Parcels, in which a run travels: what they may hold, and that no moment of opening one loses anything."""

import errno
import io
import itertools
import os
import tarfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rlkit.api import UserError
from rlkit.comparison import on_node, parcel


def tar_of(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for entry, data in entries:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


@pytest.mark.parametrize(
    "bad",
    [
        entry("../out"),
        entry("/etc/out"),
        entry("a/../../out"),
        entry("a", tarfile.SYMTYPE, "/etc/passwd"),
        entry("a", tarfile.LNKTYPE, "summary.json"),
        entry("a", tarfile.FIFOTYPE),
        entry("a", tarfile.DIRTYPE),
        entry("./a"),
        entry("a\\b"),
        entry(".lock"),
        entry("summary.json"),
    ],
)
def test_what_leads_out_of_the_folder_is_refused_before_anything_is_written(tmp_path, bad):
    home = tmp_path / "home"
    home.mkdir()
    path = tar_of(tmp_path / "t", (entry("summary.json"), b"{}"), (bad, b""))
    with pytest.raises(UserError, match=r"a run came back with '.*refused$"):
        parcel.bring(path, home)
    assert not [*home.iterdir()] and not (tmp_path / "out").exists()


def test_what_stands_in_the_way_of_a_folder_is_told(tmp_path):
    (tmp_path / "checkpoints").touch()
    with pytest.raises(UserError, match=r"^cannot write .*checkpoints: .*; make room, and the same command goes on$"):
        parcel.bring(tar_of(tmp_path / "t", (entry("checkpoints/latest.safetensors"), b"x")), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_full_disk_there_is_told(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(parcel, "pack", full)
    host = on_node.Host()
    with pytest.raises(UserError, match=r": no space left on the disk; its run cannot be sent$"):
        host.pack()
    host.close()


def test_a_link_here_is_not_written_through(tmp_path):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    (home / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(UserError, match="is a link, and links in a folder that rlkit writes are refused"):
        parcel.bring(tar_of(tmp_path / "t", (entry("checkpoints/latest.safetensors"), b"x")), home)
    assert not [*elsewhere.iterdir()]


class Killed(BaseException):
    """What `kill -9` is to a test in one process."""


@pytest.mark.parametrize("moment", range(4))
def test_at_no_moment_is_there_no_checkpoint(tmp_path, monkeypatch, moment):
    """Whoever unpacks a parcel may be killed between any two names that it gives."""
    home, count = tmp_path / "home", itertools.count()
    (home / "checkpoints").mkdir(parents=True)
    for name in ("latest", "iteration-1"):
        (home / "checkpoints" / f"{name}.safetensors").write_bytes(b"old")
    new = [(entry(f"checkpoints/{name}.safetensors"), b"new") for name in ("best", "latest")]

    def replace(*names: Path, real=os.replace) -> None:
        if next(count) == moment:
            raise Killed
        real(*names)

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(os, "replace", replace)
        parcel.bring(tar_of(tmp_path / "t", *new), home)
    there = {path.name: path.read_bytes() for path in (home / "checkpoints").iterdir()}
    assert there["latest.safetensors"] in (b"old", b"new")
    if moment > 1:  # it came to its end
        assert there == {"best.safetensors": b"new", "latest.safetensors": b"new"}
        assert [path.name for path in home.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize("size", [0, 100, 700, 1100])
def test_a_parcel_that_is_cut_off_finishes_nothing(tmp_path, size):
    home = tmp_path / "home"
    home.mkdir()
    whole = tar_of(tmp_path / "t", (entry("a.txt"), b"x" * 600), (entry("summary.json"), b"{}")).read_bytes()
    (tmp_path / "t").write_bytes(whole[:size])
    with pytest.raises(UserError, match=r"damaged|cannot be read"):
        parcel.bring(tmp_path / "t", home)
    assert not (home / "summary.json").exists()


def test_a_folder_is_packed_as_it_was_at_one_moment(tmp_path):
    """`best` and `latest` are exchanged all the time: a parcel holds two that were there together."""
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "link").symlink_to("/etc/passwd")
    (folder / ".lock").touch()
    names = [folder / "checkpoints" / f"{name}.safetensors" for name in ("best", "latest")]
    for path in names:
        path.write_text("0")
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            for path in names:  # best first
                path.with_name(f".{path.name}.00.new").write_text(str(number))
                os.replace(path.with_name(f".{path.name}.00.new"), path)
            time.sleep(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for count in range(50):
            parcel.pack(folder, tmp_path / "t")
            parcel.unpack(tmp_path / "t", tmp_path / str(count))
            there = sorted(p.name for p in (tmp_path / str(count)).rglob("*") if p.is_file())
            assert there == ["best.safetensors", "latest.safetensors"]
            best, latest = (int((tmp_path / str(count) / "checkpoints" / path.name).read_text()) for path in names)
            assert best - latest in (0, 1)
    finally:
        over.set()
        thread.join()
