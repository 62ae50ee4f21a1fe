"""Files and folders of a run: written whole or not at all, and what went wrong in plain words."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError

from rlkit.api import UserError


def prepare_folder(path: str | Path) -> Path:
    """Make a folder and see that it can be written to, before hours of work depend on it."""
    folder = Path(path).expanduser()
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(1 << 16))
    except OSError as error:
        raise UserError(f"cannot write to the folder {folder}: {reason(error)}; mend that or give another") from None
    finally:
        with suppress(OSError):
            probe.unlink()
    return folder


def reason(error: OSError) -> str:
    """Say in plain words why the system refused."""
    words = {
        errno.EEXIST: "a file is in the way",
        errno.ENOTDIR: "a file is in the way",
        errno.EACCES: "no permission",
        errno.EPERM: "no permission",
        errno.EROFS: "it is on a read-only disk",
        errno.ENOSPC: "no space left on the disk",
        errno.EDQUOT: "the disk quota is used up",
    }
    return words.get(error.errno or 0, (error.strerror or str(error)).lower())


def write_atomically(path: str | Path, text: str) -> None:
    """Write a whole file or none of it."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        to_disk(temporary)
        os.replace(temporary, path)
        to_disk(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {reason(error)}") from None


def write_folder(folder: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder beside this one, which then takes its place: nobody reads a half-written one."""
    folder = Path(folder)
    beside = folder.with_name(f".{folder.name}.new")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        write(beside)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(beside, folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise UserError(f"cannot write {folder}: {why(error)}; make room and resume the run") from None


def to_disk(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a folder; it journals renames itself
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def why(error: Exception) -> str:
    """The system's reason; safetensors tells it as text, `... (os error 28)`."""
    if isinstance(error, OSError):
        return reason(error)
    code = re.search(r"os error (\d+)", str(error))
    return reason(OSError(int(code[1]), os.strerror(int(code[1])))) if code else " ".join(str(error).split())
