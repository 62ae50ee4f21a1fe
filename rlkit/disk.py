"""Rules for all files of rlkit: no links are followed, data reach the disk, errors are in plain words."""

import errno
import os
import stat
from pathlib import Path

from rlkit.errors import UserError

NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows has none of these
BINARY = getattr(os, "O_BINARY", 0)

FULL = {  # whatever a run writes: a search counts no trial as failed for these reasons
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "it is on a read-only disk",
}

# The locks of folders that this process writes, of runs, comparisons and searches: each lock, and its folder.
_locked: dict[str, tuple[os.stat_result, os.stat_result]] = {}


def refuse_link(path: Path) -> None:
    """Raises: UserError where the path is a link."""
    if os.path.islink(path):  # pathlib's function raises where a name is too long
        raise UserError(
            f"{path} is a link, and links in a folder that rlkit writes are refused: put what it points to in its place"
        )


def is_file(path: Path) -> bool:
    """Whether this is a file.

    Raises: UserError where that cannot be determined: the folder may not be entered, or the name is too long.
    """
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        words = reason(error) if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read: {words}; fix that or give another") from None


def note_lock(lock: Path) -> None:
    """Note the lock file of a folder, which is held until `forget_lock`: no other file gets its number so long."""
    _locked[os.path.abspath(lock)] = os.stat(lock), os.stat(lock.parent)


def forget_lock(lock: Path) -> None:
    _locked.pop(os.path.abspath(lock), None)


def check_same(folder: Path) -> None:
    """Refuse to write into a folder that is not there, that is another one, or that has a lock of another process."""
    if not folder.is_dir():  # a new one would hold no config.yaml, so no run could go on from it
        raise UserError(f"{folder} is gone, moved or deleted during the run: resume it where it is, or start a new run")
    lock = folder / ".lock"
    if (noted := _locked.get(os.path.abspath(lock))) is None:
        return
    alone = not os.path.lexists(lock)  # somebody removed the lock, and nothing else
    if not os.path.samestat(noted[1], os.stat(folder)) or not (alone or os.path.samestat(noted[0], os.lstat(lock))):
        raise UserError(
            f"{folder} is another folder now, and the one before was moved or deleted meanwhile: resume it where it "
            "is, or start a new run"
        )


def hold(handle: int) -> bool:
    """Lock an open file until it is closed. Returns: False where another process has it, or files have no locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):  # Windows has no such locks
        return False
    return True


def is_being_written(path: Path) -> bool:
    """Whether a process, of whomever, writes this file now: it holds it. Windows removes no open file anyway."""
    if os.name == "nt" or not stat.S_ISREG(path.lstat().st_mode):
        return False
    handle = os.open(path, os.O_RDWR | NO_LINK)  # NFS locks only what is open for writing
    try:
        return not hold(handle)
    finally:
        os.close(handle)


def to_disk(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder; it journals renames itself
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason(error: OSError) -> str:
    """The reason of a system error, in plain words."""
    words = {
        errno.EEXIST: "a file is in the way",
        errno.ENOTDIR: "a file is in the way",
        errno.EACCES: "no permission",
        errno.EPERM: "no permission",
        errno.ELOOP: "it is a link",
        **FULL,
    }
    return words.get(error.errno or 0, (error.strerror or str(error)).lower())
