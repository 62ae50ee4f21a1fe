"""A replay in files: memory-mapped tensors in a folder, which stay when the run is killed and are in no checkpoint.

A checkpoint says what the files held when it was written. So nothing of that is written over before the next one
counts: the ring of steps has `spare` places beside its capacity, and a checkpoint is due before they are used up. Each
step and each frame has a checksum in the checkpoint: it shows files that are damaged, of another run, or further.
"""

import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from tensordict import MemoryMappedTensor
from torch import Tensor

from rlkit.disk import BINARY, NO_LINK, reason, refuse_link, to_disk
from rlkit.errors import UserError
from rlkit.memory import gib

Checks = NDArray[np.uint32]
OURS = re.compile(r"\.lock|kept|[a-z_]+(-\d+)?\.ring")
SPARE = 10  # 1 / SPARE of the capacity may be written between two checkpoints
KEPT = "A run needs these files: its checkpoints say what is in them.\n"


class Storage:
    """The folder of one run's replay.

    folder   absolute; made, locked and checked when the first step comes or a checkpoint is loaded, not before
    most     steps that come at a time
    spare    how many may come between two checkpoints
    """

    def __init__(self, folder: Path, most: int, capacity: int) -> None:
        self.folder, self.most, self.spare = folder, most, max(2 * most, capacity // SPARE)
        self.called = f"algo.storage={folder}"
        self.saved = 0  # how many steps the newest checkpoint knows
        self.paths: list[Path] = []
        self.lock: FileLock | None = None
        self.device = torch.device("cpu")  # of what is drawn

    def begin(self, needed: int) -> None:
        """Make room for a new ring of so many bytes, in place of one that no checkpoint knows.

        Raises: UserError where another run needs what is there, what is there is no ring, or the disk is too small.
        """
        try:
            str(self.folder).encode()
        except UnicodeEncodeError:
            raise UserError(f"{self.called} is not a name in UTF-8, which torch needs: give another folder") from None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.called} cannot be made: {reason(error)}; fix that or give another") from None
        self.take()
        there = sorted(os.listdir(self.folder))
        if strange := [name for name in there if not OURS.fullmatch(name)]:
            raise UserError(f"{self.called} holds {strange[0]}, which is not part of a replay: give an empty folder")
        if "kept" in there:
            raise UserError(
                f"{self.called} holds the replay of another run, which could not go on without it: give another "
                "folder, or delete this one"
            )
        for name in there:
            if name != ".lock":
                (self.folder / name).unlink()
        self.check_space(needed, "give a smaller algo.capacity, or a folder on another disk")

    def taken(self, steps: dict[str, Tensor], seen: int) -> dict[str, Tensor]:
        """Steps that follow `seen` others, as they are kept: on the CPU."""
        if seen + len(steps["mask"]) > self.saved + self.spare:
            raise RuntimeError("these steps would take the places of those that the newest checkpoint needs")
        self.device = steps["mask"].device
        return {key: x.cpu() for key, x in steps.items()}

    def is_full(self, seen: int) -> bool:
        """Whether a checkpoint is needed before more steps come."""
        return seen + self.most > self.saved + self.spare

    def take(self) -> None:
        """Keep every other run out, until `close` or the end of the process."""
        if self.lock is not None:
            return
        if not self.folder.is_dir():
            raise self.wrong("there is no such folder")
        refuse_link(self.folder / ".lock")
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            raise UserError(f"{self.called} is being written by another run: give each a folder of its own") from None
        except (OSError, NotImplementedError) as error:
            why = reason(error) if isinstance(error, OSError) else "it has no locks"
            raise UserError(f"{self.called} cannot be locked: {why}; give a folder on another disk") from None
        self.lock = lock

    def check_space(self, needed: int, remedy: str) -> None:
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise UserError(f"{self.called} needs {gib(needed)}, {gib(free)} are free: {remedy}")

    def new(self, name: str, like: Tensor, rows: int) -> Tensor:
        """A tensor of zeros in a new file: [rows, ...] like [N, ...]. Its space on the disk is taken at once."""
        path, size = self.path(name), rows * bytes_each(like)
        try:
            path.unlink(missing_ok=True)  # made after the checkpoint from which the run goes on
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY, 0o666)
            try:
                # A file with holes would end the process where the disk is full.
                os.posix_fallocate(handle, 0, size) if hasattr(os, "posix_fallocate") else os.ftruncate(handle, size)
            finally:
                os.close(handle)
        except OSError as error:
            raise UserError(f"cannot write {path}: {reason(error)}; make room there and resume the run") from None
        return self.mapped(path, like, rows)

    def open(self, name: str, like: Tensor, rows: int) -> Tensor:
        """The tensor that `new` has made, in an earlier process."""
        path, size = self.path(name), rows * bytes_each(like)
        refuse_link(path)
        try:
            there = os.stat(path)
        except OSError as error:
            raise self.wrong(f"{path.name} cannot be read: {reason(error)}") from None
        if not stat.S_ISREG(there.st_mode) or there.st_size != size:
            raise self.wrong(f"{path.name} has {there.st_size:,} bytes, not {size:,}")
        if there.st_nlink > 1:
            raise self.wrong(f"{path.name} has a second name, a hard link, and what is written would stand in both")
        return self.mapped(path, like, rows)

    def mapped(self, path: Path, like: Tensor, rows: int) -> Tensor:
        self.paths.append(path)
        shape = torch.Size((rows, *like.shape[1:]))
        found: Tensor = MemoryMappedTensor.from_filename(str(path), dtype=like.dtype, shape=shape)
        return found.as_subclass(Tensor)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.ring"

    def wrong(self, what: str) -> UserError:
        """The files are not those that the checkpoint was written with."""
        return UserError(
            f"{self.called} is not as the checkpoint needs it ({what}): put it back as it was, give "
            "algo.storage=FOLDER beside resume= if it has moved, or start a new run"
        )

    def flush(self) -> None:
        """Flush to disk all that was written so far."""
        for path in [*self.paths, self.folder] if self.paths else []:
            with writing(path):
                to_disk(path)

    def keep(self, seen: int) -> None:
        """A checkpoint of so many steps counts, which needs these files: no other run may have the folder."""
        self.saved = seen
        mark = self.folder / "kept"
        if not mark.exists():
            refuse_link(mark)
            with writing(mark):
                mark.write_text(KEPT)
                to_disk(self.folder)

    def close(self) -> None:
        if self.lock is not None:
            self.lock.release()
            self.lock = None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}; fix that and resume the run") from None


def bytes_each(x: Tensor) -> int:
    """The bytes of one row of a tensor [N, ...]."""
    return prod(x.shape[1:]) * x.dtype.itemsize


def checksums(columns: Sequence[Tensor]) -> Checks:
    """One for each step, of all that is kept of it. [N, ...] each → [N]"""
    rows = [x.reshape(len(x), prod(x.shape[1:])).cpu().contiguous().view(torch.uint8) for x in columns]
    return np.array([zlib.crc32(row) for row in torch.cat(rows, 1).numpy()], dtype=np.uint32)
