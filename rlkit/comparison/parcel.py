"""A run folder on its way between two machines: one file that holds its files, read back link by no link.

What comes back was written elsewhere, so nothing of it leads out of the folder, and nothing of it counts before all of
it is here: `summary.json`, by which a run is finished, is written last.
"""

import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from rlkit.disk import NO_LINK, refuse_link, to_disk
from rlkit.errors import UserError, one_line
from rlkit.recording.files import LEFT, beside, opened, remove, replacing, why

LAST = "summary.json"
CHECKPOINTS = "checkpoints"
TEXTS = (".yaml", ".json", ".jsonl", ".txt", ".md")  # files in which the path of a folder may stand
OTHERS = (".lock",)  # what belongs to a machine and not to a run
AGAIN = 100  # times that a folder is looked at which is being written
BLOCK = 1 << 20


def pack(folder: Path, to: Path) -> dict[str, int]:
    """Write the files of a run folder, which may be written meanwhile, as they were at one moment: their sizes.

    Raises: OSError.
    """
    with ExitStack() as stack, tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as tar:
        return {name: _add(tar, name, file) for name, file in _at_once(folder, stack)}


def pack_files(places: Iterable[tuple[str, Path]], to: Path) -> None:
    """Write files under names of their own. Raises: OSError."""
    with tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in places:
            with opened(path) as file:
                _add(tar, name, file)


def _add(tar: tarfile.TarFile, name: str, file: BinaryIO) -> int:
    entry = tarfile.TarInfo(name)
    entry.size = os.fstat(file.fileno()).st_size  # a file that grows is taken as long as it is now
    tar.addfile(entry, file)
    return entry.size


def _at_once(folder: Path, stack: ExitStack) -> list[tuple[str, BinaryIO]]:
    """All files, opened while none of them was put in the place of another.

    A checkpoint is a file that takes the place of the one before, and `best` and `latest` belong together. What only
    grows, such as metrics.jsonl, is at least as long as the checkpoint says: it is measured after it was opened.
    """
    for _ in range(AGAIN):
        there = _listed(folder)
        with ExitStack() as files, suppress(FileNotFoundError):
            found = [(name, files.enter_context(_no_link(folder / name))) for name in there]
            numbers = {name: os.fstat(file.fileno()).st_ino for name, file in found}
            if numbers == there and _listed(folder) == there:
                stack.push(files.pop_all())
                return found
    raise OSError(None, "it never stays the same")


def _listed(folder: Path) -> dict[str, int]:
    """The files of a folder with their numbers, without what is not whole and what belongs to this machine."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not LEFT.fullmatch(name))
        for name in sorted(names):
            path = Path(place, name)
            with suppress(FileNotFoundError):
                if name not in OTHERS and not LEFT.fullmatch(name) and stat.S_ISREG(path.lstat().st_mode):
                    found[path.relative_to(folder).as_posix()] = path.lstat().st_ino
    return found


def _no_link(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | NO_LINK), "rb")


def unpack(parcel: Path, folder: Path) -> None:
    """Fill a new folder. Raises: UserError for a parcel that is none, or that would write elsewhere."""
    with _open(parcel) as tar:
        for entry in _entries(tar):
            path = folder / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                _copy(tar, entry, file)


def bring(parcel: Path, folder: Path, strip: str = "") -> None:
    """Put what has come in the place of what a run folder holds: each file, and each folder in it, whole or not at all.

    Of checkpoints each file counts for itself, as where the run writes them.

    In texts `strip` is left out: the path of the folder in which the run folder lay on the other machine.

    Raises: UserError for a parcel that is none or that would write elsewhere, and where it cannot be written.
    """
    with _open(parcel) as tar:
        entries = list(_entries(tar))
        tops: dict[str, list[tarfile.TarInfo]] = {}
        for entry in entries:
            tops.setdefault(PurePosixPath(entry.name).parts[0], []).append(entry)
        if LAST not in tops:  # the run is not finished, whatever it was before
            remove(folder / LAST)
        for top in sorted(tops, key=lambda top: (top == LAST, "/" in tops[top][0].name, top)):
            if "/" in tops[top][0].name:
                _take_folder(tar, tops[top], folder / top, strip)
            else:
                with replacing(folder / top) as file:
                    _copy(tar, tops[top][0], file, strip)
    for path in folder.glob("events.*"):
        if path.name not in tops:  # one that a continued run has written anew
            remove(path)


def _take_folder(tar: tarfile.TarFile, entries: Iterable[tarfile.TarInfo], folder: Path, strip: str) -> None:
    refuse_link(folder)
    new, old = beside(folder), beside(folder)
    try:
        for entry in entries:
            path = new / PurePosixPath(*PurePosixPath(entry.name).parts[1:])
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                _copy(tar, entry, file, strip)
                file.flush()
                os.fsync(file.fileno())
        if folder.name == CHECKPOINTS and folder.is_dir():
            _take_files(new, folder)
        else:
            if folder.is_dir():
                os.replace(folder, old)
            os.replace(new, folder)
    except OSError as error:
        remove(new)
        raise UserError(f"cannot write {folder}: {why(error)}; make room, and the same command goes on") from None
    shutil.rmtree(old, ignore_errors=True)


def _take_files(new: Path, folder: Path) -> None:
    """Put each file in the place of the one before: at no moment is there no checkpoint that a run may go on from."""
    names = sorted((path.name for path in new.iterdir()), key=lambda name: (name.startswith("latest."), name))
    for name in names:
        os.replace(new / name, folder / name)
    for path in folder.iterdir():
        if path.name not in names:
            remove(path)
    to_disk(folder)
    remove(new)


def _open(parcel: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(parcel, "r:")
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"{parcel} cannot be read: {one_line(error)}") from None


def _entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The files. Raises: UserError for a link, a device, and a name that leads out of the folder."""
    seen: set[str] = set()
    try:
        for entry in tar:
            path = PurePosixPath(entry.name)
            plain = entry.isreg() and not entry.issparse() and str(path) == entry.name
            if not plain or path.is_absolute() or not path.parts or {"..", "."} & set(path.parts) or "\0" in entry.name:
                raise UserError(
                    f"a run came back with '{entry.name}', which is not a file in its folder: it is refused"
                )
            if entry.name in seen or "\\" in entry.name or entry.name in OTHERS:
                raise UserError(f"a run came back with '{entry.name}', which no run writes: it is refused")
            seen.add(entry.name)
            yield entry
    except (OSError, tarfile.TarError, ValueError) as error:
        raise UserError(f"what a run came back with is damaged: {one_line(error)}") from None


def _copy(tar: tarfile.TarFile, entry: tarfile.TarInfo, to: BinaryIO, strip: str = "") -> None:
    file = tar.extractfile(entry)
    assert file is not None, "it is a file"
    if strip and entry.name.endswith(TEXTS):
        to.write(file.read().replace(strip.encode(), b""))
        return
    left = entry.size
    while left and (data := file.read(min(left, BLOCK))):
        to.write(data)
        left -= len(data)
    if left:
        raise UserError(f"what a run came back with is damaged: {entry.name} is cut off")
