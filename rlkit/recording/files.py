"""Files and folders of a run: written completely or not at all, never through a link, with errors in plain words."""

import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from filecmp import cmpfiles
from pathlib import Path
from typing import BinaryIO, TypeGuard

from safetensors import SafetensorError

from rlkit.disk import BINARY, NO_LINK, hold, is_being_written, to_disk
from rlkit.disk import is_file as is_file
from rlkit.disk import reason as reason
from rlkit.disk import refuse_link as refuse_link
from rlkit.errors import UserError
from rlkit.paths import home

SMALL = 1 << 20  # most bytes of a settings file or of one measurement
LARGEST = 1 << 24  # most bytes of any JSON file
HUGE = 1e100  # larger values are not measurements: their squares would overflow
OURS = re.compile(
    r"\.lock|(config|before|summary|metrics|completions)\.\w+|events\..*|checkpoints|model|adapter|wandb.*"
)
LEFT = re.compile(r"\..+\.new|\.probe-\d+")

OF_FILE = (None, errno.EINVAL, errno.ELOOP, errno.ENOENT, errno.ENXIO)  # no file, or one of another kind
BY_TORCH = re.compile(r"unable to (?:open|mmap) .*\((\d+)\)$")  # its words for an error of the system
NO_WAIT = getattr(os, "O_NONBLOCK", 0)


def prepare_folder(path: str | Path, start: Path = Path()) -> Path:
    """Create a folder and check that it is writable, before hours of work depend on it.

    A relative path is taken relative to `start`. The returned path includes `start`; messages show `path` as given.
    """
    check_name(path)
    try:
        folder = home(path)
        if str(folder).startswith("~"):
            raise ValueError("there is no such user")
        folder = start / folder
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(1 << 16))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UserError(f"cannot write to the folder {path}: {why(error)}; fix that or give another") from None
    return folder


def check_name(path: str | Path) -> None:
    """Refuse a path that is not UTF-8: safetensors writes such a file and cannot open it again."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        if (language := sys.getfilesystemencoding()) != "utf-8":
            raise UserError(f"names are read as {language} here, and {path} is none: set PYTHONUTF8=1") from None
        raise UserError(f"the name {path} is not UTF-8 text: rename it, or give another") from None


def tidy(folder: Path) -> None:
    """Refuse links among the files of a run, and remove what a killed process left; targets of links stay."""
    with there(folder):
        top = sorted(folder.iterdir())
        inside = sorted((folder / "checkpoints").glob("*")) + sorted((folder / "checkpoints").glob(".*new"))
    sweep(folder)
    for path in top:
        if OURS.fullmatch(path.name):
            refuse_link(path)
    for path in inside:
        if path.name == ".new" or LEFT.fullmatch(path.name):
            remove(path)
        else:
            refuse_link(path)


def sweep(folder: Path) -> None:
    """Remove the incomplete files that killed processes left in a folder which this process has locked.

    An evaluation takes no lock of the folder: what it writes now stays.
    """
    with there(folder):
        left = [path for path in folder.iterdir() if LEFT.fullmatch(path.name)]
    for path in left:
        with suppress(OSError):  # its writer has ended by now
            if not is_being_written(path):
                remove(path)


@contextmanager
def there(path: Path) -> Iterator[None]:
    """Report in one line what cannot be read: another process may remove a folder at any time."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be read: {why(error)}") from None


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none where there is no folder. Raises: UserError where it cannot be read."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {why(error)}") from None


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, as far as permissions allow."""
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file to read; a pipe or a device is refused, as reading it would never end.

    Raises: OSError, also where it is not a file.
    """
    handle = os.open(path, os.O_RDONLY | NO_WAIT | BINARY)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a file")
    with os.fdopen(handle, "rb") as file:
        yield file


@contextmanager
def intact_or_not(path: Path) -> Iterator[None]:
    """Raise a UserError where the system cannot read a file, such as with too many open ones: it may be intact."""
    try:
        yield
    except OSError as error:
        if error.errno in OF_FILE:
            raise
        remedy = "; if that stays so, move it away, and resume goes on without it" if error.errno == errno.EIO else ""
        raise UserError(f"{path} cannot be read: {why(error)}{remedy}") from None
    except RuntimeError as error:
        if BY_TORCH.search(str(error)) is None:
            raise
        raise UserError(f"{path} cannot be read: {why(error)}") from None


def read_text(path: Path, limit: int = SMALL) -> str:
    """The text of a small file.

    Raises: UserError where it is not a file, is larger than `limit` bytes, is not text, or cannot be read.
    """
    try:
        with opened(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"it has more than {limit:,} bytes")
        return data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {why(error)}") from None


def parse(text: str | bytes) -> object:
    """Parse JSON. Raises: ValueError, also where it is nested too deeply."""
    try:
        found: object = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def read_object(path: Path) -> dict[str, object]:
    """The object that a JSON file of a run holds.

    Raises: UserError that names the mistake.
    """
    text = read_text(path, LARGEST)
    try:
        found = parse(text)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; run it again") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: it holds no object; run it again")
    return found


def is_number(value: object) -> TypeGuard[float]:
    """Whether a JSON value is a measurement: finite, and small enough to be squared."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -HUGE <= value <= HUGE


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file that replaces `path` once it is complete and on the disk, with this mode less the umask.

    Raises: UserError where that fails, or where `path` is a link; the old file stays.
    """
    refuse_link(path)
    new = beside(path)
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY, mode)
        with os.fdopen(handle, "wb") as file:
            hold(handle)  # `sweep` leaves it to its writer
            yield file
            file.flush()
            os.fsync(handle)
        os.replace(new, path)
        to_disk(path.parent)
    except OSError as error:
        raise UserError(f"cannot write {path}: {reason(error)}") from None
    finally:
        remove(new)  # also after Ctrl-C, as nobody sweeps the folder of a video


def part_from_others(path: Path) -> None:
    """Give a file with a second name (a hard link) a copy of its own: what is added would stand in both.

    Raises: UserError where that fails, or where it is a link.
    """
    if os.path.isfile(path) and path.stat().st_nlink > 1:
        with there(path), opened(path) as old, replacing(path, path.stat().st_mode & 0o777) as new:
            shutil.copyfileobj(old, new)


def no_link(path: str, flags: int) -> int:
    """Open a file, but neither what a link leads to nor a pipe that nobody reads. Raises OSError for those.

    It is the `opener` of a file that is added to; where that has a second name, a copy is opened.
    """
    if not os.path.islink(path):
        part_from_others(Path(path))
    return os.open(path, flags | NO_LINK | NO_WAIT, 0o666)


def beside(path: Path) -> Path:
    """An unpredictable name in the same folder, for a file that is not complete yet."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")


def write_atomically(path: str | Path, text: str) -> None:
    """Write the whole file, or leave the old one."""
    with replacing(Path(path)) as file:
        file.write(text.encode("utf-8", "replace"))


def write_folder(folder: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary folder, which then replaces this one: nobody reads a half-written folder.

    A folder with the same content stays: a finished run that is measured again is never without its model.
    """
    folder = Path(folder)
    refuse_link(folder)
    new = beside(folder)
    try:
        new.mkdir()
        write(new)
        for path in new.iterdir():
            keep_umask(path)
        old = beside(folder)
        if folder.is_dir() and alike(folder, new):
            old = new
        else:
            if folder.is_dir():  # renamed first: removing takes longer, and the process may be killed meanwhile
                os.replace(folder, old)
            os.replace(new, folder)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        remove(new)
        raise UserError(f"cannot write {folder}: {why(error)}; make room and resume the run") from None


def alike(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files, byte for byte; folders in them count as different."""
    names = sorted(os.listdir(one))
    return names == sorted(os.listdir(other)) and cmpfiles(one, other, names, shallow=False)[0] == names


def keep_umask(path: Path) -> None:
    """Give a file the permissions of the folder that was just created for it: the library chose its own."""
    path.chmod(path.parent.stat().st_mode & 0o666)


def why(error: Exception) -> str:
    """The system's reason; safetensors and torch give it as text, `... (os error 28)`."""
    if isinstance(error, OSError):
        return reason(error)
    code = BY_TORCH.search(str(error)) or re.search(r"os error (\d+)", str(error))
    return reason(OSError(int(code[1]), os.strerror(int(code[1])))) if code else " ".join(str(error).split())
