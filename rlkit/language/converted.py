"""Model folders that are converted once from another file, and kept in the user's cache."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from safetensors import SafetensorError

from rlkit.errors import UserError
from rlkit.language.files import read_json
from rlkit.paths import home

SIZES = "converted.json"  # lists the bytes of each file of a folder; it is written last
NEW = ".new-"  # prefix of the name of an unfinished folder


def kept(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """The cache folder with this name; where it is missing or incomplete, `make` fills an empty folder.

    Raises: UserError where the cache cannot be written; nothing is left behind then.
    """
    cache = home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "rlkit" / kind
    folder = cache / name
    if _whole(folder):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{cache}.lock"):  # released when its process ends; a second one waits for it
            if not _whole(folder):
                _make(folder, make)
    except (OSError, SafetensorError, NotImplementedError) as error:  # NotImplementedError: a disk without locks
        told = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())[:200]
        raise UserError(
            f"{folder} cannot be written ({told}): make room there, or name another folder in XDG_CACHE_HOME"
        ) from None
    return folder


def _whole(folder: Path) -> bool:
    try:
        sizes = read_json(folder / SIZES)
        return bool(sizes) and all((folder / file).stat().st_size == size for file, size in sizes.items())
    except (UserError, OSError, ValueError):
        return False


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    """Fill a temporary folder and rename it. The caller holds the lock."""
    for left in folder.parent.glob(f"{NEW}*"):  # left by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=NEW, dir=folder.parent))
    try:
        make(new)
        sizes = {file.name: file.stat().st_size for file in sorted(new.iterdir())}
        (new / SIZES).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
