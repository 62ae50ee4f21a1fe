"""Checkpoints: atomic, safe to load, exact to resume.

A checkpoint is one safetensors file, `checkpoints/NAME.safetensors`. It holds the tensors; its metadata hold the
structure around them (JSON; a long structure is stored as a tensor of its bytes) and a checksum over both. Nothing in
it can execute. A new checkpoint is written to a temporary file, flushed to the disk, and only then renamed. The one
before it stays as `iteration-N.safetensors` if older checkpoints are kept.
"""

import hashlib
import json
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlkit import memory, ranks, shards, streamed
from rlkit.api import State, UserError
from rlkit.disk import check_same, refuse_link, to_disk
from rlkit.errors import one_line
from rlkit.recording.files import beside, check_name, intact_or_not, keep_umask, names_in, opened, parse, remove, why
from rlkit.recording.structure import decode, encode, own_memory
from rlkit.terminal import warn

EARLIER = ".best-before"  # the best checkpoint up to `latest`; it is kept while `best` is of a later iteration
HEADER = 10**8  # largest size in bytes that safetensors allows for the metadata and the names of the tensors
PAGED = 2**20  # a tensor of at least this many bytes stays in its file (memory-mapped)
NUMBERS = "numbers"  # key of what a state holds without a state_dict of its own: one object may stand there twice
STRUCTURE = "structure"  # key of the structure; the names of a state's tensors begin with a slash


class Damaged(Exception):
    """A checkpoint file that is incomplete, was changed, or was not written by rlkit."""


def save(folder: str | Path, state: State, name: str = "latest", keep: int = 0, iteration: int = 0) -> None:
    """Write `state`: nested dicts, lists and tuples of tensors, arrays, numbers, texts, booleans and None.

    `iteration` is the number of finished iterations. The previous checkpoint of this name becomes iteration-N, and the
    newest `keep` of those stay; a previous one of the same iteration is replaced. A `best` that is not later than
    `latest` is kept as EARLIER until the next `latest`: `drop_beyond` restores it when the run resumes from there.
    """
    tensors: dict[str, Tensor] = {}
    each = {key: encode(x, f"/{key!r}", tensors, {} if key == NUMBERS else None) for key, x in state.items()}
    structure = json.dumps(each)
    check_header(tensors)
    whole = streamed.wholes(tensors if shards.any_in(tensors.values()) else {})
    try:
        if ranks.first():
            _write(folder, name, structure, tensors, whole, keep, iteration)
    finally:
        deque(whole, maxlen=0)  # every rank takes part in gathering the shards, even if nothing can be written


def _write(
    folder: str | Path,
    name: str,
    structure: str,
    tensors: dict[str, Tensor],
    whole: Iterable[Tensor],
    keep: int,
    iteration: int,
) -> None:
    path = _path(folder, name)
    check_same(Path(folder))
    for place in (path.parent, path):
        refuse_link(place)
    new = beside(path) / path.name  # in a new folder: safetensors follows links and chooses its own permissions
    metadata = {"iteration": str(iteration)}
    if len(structure) <= HEADER // 100:
        metadata[STRUCTURE] = structure
    else:
        tensors[STRUCTURE] = torch.frombuffer(bytearray(structure, "utf-8"), dtype=torch.uint8)
    try:
        path.parent.mkdir(exist_ok=True)
        new.parent.mkdir()
        _fill(new, tensors, whole, metadata)
        keep_umask(new)
        to_disk(new)
        _keep_old(folder, path, keep, iteration, new.parent / "old")
        os.replace(new, path)
        to_disk(path.parent)
        if name == "latest":
            for old in _older(path.parent)[keep:]:
                old.unlink()
            remove(_path(folder, EARLIER))
    except (OSError, SafetensorError) as error:
        check_same(Path(folder))  # it may have been moved in the midst of this
        kept = "the checkpoint before it is kept, to resume from"
        none = "there is none before it: make room, and resume starts the run again"
        raise UserError(f"cannot write {path}: {why(error)}; {kept if resumable(folder) else none}") from None
    finally:
        remove(new.parent)


def _fill(path: Path, tensors: dict[str, Tensor], whole: Iterable[Tensor], metadata: dict[str, str]) -> None:
    """Write the tensors and their checksum into a new file."""
    if shards.any_in(tensors.values()):
        _stream(path, tensors, whole, metadata)
    else:
        own = own_memory(tensors)
        save_file(own, path, metadata | {"checksum": _checksum(metadata, own)})


def _stream(path: Path, tensors: Mapping[str, Tensor], whole: Iterable[Tensor], metadata: dict[str, str]) -> None:
    """Write the same file for tensors that are sharded over ranks; the checksum is computed from the written file."""
    streamed.write(path, streamed.sizes(tensors), whole, metadata | {"checksum": streamed.UNSEALED})
    with safe_open(path, framework="pt") as file:
        checksum = _checksum(metadata, tensors, file.get_tensor)
    streamed.seal(path, checksum)


def check_header(tensors: Mapping[str, Tensor]) -> None:
    """Raises: UserError where one file cannot name so many tensors."""
    if sum(len(json.dumps(name)) + 100 + 20 * x.dim() for name, x in tensors.items()) > 0.9 * HEADER:
        name, count = Counter(name.split("/")[1:3][-1] for name in tensors).most_common(1)[0]
        raise UserError(
            f"{name} has {count:,} tensors, of {len(tensors):,} in all, more than a checkpoint can name: keep "
            "fewer, or make one of many with torch.stack"
        )


def load(folder: str | Path, name: str = "latest", tidy: bool = False) -> State:
    """Read a checkpoint, tensors on the CPU; if `latest` is damaged, read the newest intact one before it.

    One line reports which other checkpoint was used. tidy: rename the damaged file to `NAME.damaged`; without it
    nothing is written.
    """
    path = _path(folder, name)
    check_name(path)
    damaged: dict[Path, str] = {}
    for candidate in [path, *(_older(path.parent) if name == "latest" else [])]:
        if not os.path.lexists(candidate):
            continue
        try:
            state = _read(candidate)
        except Damaged as error:
            damaged[candidate] = f"{candidate} is damaged ({error})"
            continue
        if candidate != path:
            if tidy:
                _set_aside(damaged)
            if tidy or ranks.size() == 1:  # of several ranks, the first one looked before and has said it
                warn(f"{'; '.join(damaged.values()) or f'{path} is missing'}: going on from {candidate.stem}")
        return state
    if damaged:
        remedy = "start the run again" if name == "latest" else "give checkpoint=latest, or resume with measure=latest"
        raise UserError(f"{'; '.join(damaged.values())}: there is no good one to use instead; {remedy}")
    there = [p.stem for p in sorted(path.parent.glob("[!.]*.safetensors"))]
    raise UserError(f"{folder} has no checkpoint '{name}': there are {', '.join(there) or 'none'}")


def drop_beyond(folder: str | Path, iteration: int) -> int | None:
    """Remove a `best` that is later than this iteration, from which the run resumes; the previous best takes its place.

    Returns: the iteration of the removed one, if there was no previous best to restore.
    """
    path, earlier = _path(folder, "best"), _path(folder, EARLIER)
    found = _iteration(path)
    if os.path.lexists(path) and (found is None or found <= iteration):
        return None
    if _up_to(earlier, iteration):
        os.replace(earlier, path)
        return None
    remove(path)
    return found


@contextmanager
def fitting(folder: str | Path, part: str) -> Iterator[None]:
    """Raise a UserError of one line where this part of a checkpoint cannot be restored into the run."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        words = f"{type(error).__name__}: {one_line(error)}"[:200]
        raise UserError(
            f"{folder}: '{part}' of its checkpoint does not fit this run ({words}): the checkpoint or the code was "
            "changed, or it is another run's; put that back, or start a new run"
        ) from error


def resumable(folder: str | Path) -> bool:
    """Whether there is a checkpoint to resume from, intact or not; `best` does not count, as the run was further.

    Raises: UserError where nobody can tell: the run would start again.
    """
    path = _path(folder, "latest")
    return path.name in names_in(path.parent) or bool(_older(path.parent))


def _path(folder: str | Path, name: str) -> Path:
    return Path(folder) / "checkpoints" / f"{name}.safetensors"


def _older(folder: Path) -> list[Path]:
    """The files iteration-N, newest first."""
    found = {folder / name: re.fullmatch(r"iteration-(\d+)\.safetensors", name) for name in names_in(folder)}
    return sorted((path for path, name in found.items() if name), key=lambda path: -int(path.stem[10:]))


def _iteration(path: Path) -> int | None:
    """The iteration of a checkpoint; None where it is unknown."""
    try:
        with intact_or_not(path):
            _check_file(path)
            with safe_open(path, framework="pt") as file:
                return int((file.metadata() or {})["iteration"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _keep_old(folder: str | Path, path: Path, keep: int, iteration: int, spare: Path) -> None:
    """Give the file whose name a new checkpoint takes a second name, if it is kept: at no moment is there none."""
    before = _iteration(path) if keep else None
    name = None if before in (None, iteration) else f"iteration-{before}"
    if path.stem == "best" and _up_to(path, _iteration(_path(folder, "latest"))):
        name = EARLIER
    if name is not None:
        with suppress(OSError):  # on a disk whose files have one name each, it is renamed
            os.link(path, spare)
        os.replace(spare if spare.exists() else path, _path(folder, name))


def _up_to(path: Path, iteration: int | None) -> bool:
    """Whether the checkpoint exists and is of this iteration or an earlier one."""
    found = _iteration(path)
    return found is not None and iteration is not None and found <= iteration


def _set_aside(damaged: Iterable[Path]) -> None:
    """Rename damaged files, so that nothing is lost."""
    for path in damaged:
        with suppress(OSError):  # for example a read-only folder
            os.replace(path, path.with_suffix(".damaged"))


def _read(path: Path) -> State:
    try:
        with intact_or_not(path):
            size = _check_file(path)
            if not ranks.layered():
                memory.check(size, str(path), "free some, or use a machine with more")
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: _own(file.get_tensor(key)) for key in file.keys()}
        checksum = metadata.pop("checksum", "")
        if "iteration" not in metadata or STRUCTURE not in metadata.keys() | tensors.keys():
            raise Damaged("it is not a checkpoint of rlkit")
        if checksum != _checksum(metadata, tensors):
            raise Damaged("its checksum does not fit")
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise Damaged(why(error)) from None
    try:
        structure = metadata[STRUCTURE] if STRUCTURE in metadata else tensors.pop(STRUCTURE).numpy().tobytes().decode()
        state = parse(structure)
        if isinstance(state, dict) and not any(key.startswith("$") for key in state):
            state = {key: decode(x, tensors, {} if key == NUMBERS else None) for key, x in state.items()}
    except (LookupError, TypeError, ValueError, RuntimeError):  # the file was changed, and its checksum recomputed
        raise Damaged("its structure and its tensors do not fit") from None
    if not isinstance(state, dict) or any(key.startswith("$") for key in state):
        raise Damaged("it is not a checkpoint of rlkit")
    return state


def _check_file(path: Path) -> int:
    """The size of a regular file. A pipe or a device is refused before it is read: reading it would never end."""
    with opened(path) as file:
        return os.fstat(file.fileno()).st_size


def _own(x: Tensor) -> Tensor:
    """A copy: the file's memory is not aligned as torch aligns it, and the rounding of some kernels depends on that.

    Sharded tensors are left as they are: each rank copies its part later.
    """
    return x if ranks.layered() and x.nbytes >= PAGED else x.clone()


def _checksum(
    metadata: dict[str, str], tensors: Mapping[str, Tensor], get: Callable[[str], Tensor] | None = None
) -> str:
    """The checksum over the metadata and all tensors; `get` reads one tensor where not all are in memory."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        x = tensors[name] if get is None else get(name)
        digest.update(f"\n{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
