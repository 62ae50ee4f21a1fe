"""Checkpoints: atomic, safe to load, exact to resume.

A checkpoint is one safetensors file, `checkpoints/NAME.safetensors`: the tensors, and as metadata the structure around
them (JSON; a long one is a tensor of its bytes) with a checksum over both. Nothing in it can execute. A new one is
written beside the old, reaches the disk, and only then takes its name; the one before stays as
`iteration-N.safetensors`, where older ones are kept.
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
from rlkit.errors import one_line
from rlkit.recording.files import beside, check_name, keep_umask, opened, parse, refuse_link, remove, to_disk, why
from rlkit.recording.structure import decode, encode
from rlkit.terminal import warn

EARLIER = ".best-before"  # the best one that `latest` knows of, while `best` is of a later iteration
HEADER = 10**8  # bytes that safetensors gives to the metadata and the names of the tensors
PAGED = 2**20  # bytes of a tensor from which on it is left in its file
STRUCTURE = "structure"  # the names of tensors of a state begin with a slash


class Damaged(Exception):
    """A checkpoint file that is torn, changed or none of ours."""


def save(folder: str | Path, state: State, name: str = "latest", keep: int = 0, iteration: int = 0) -> None:
    """Write `state`: nested dicts, lists and tuples of tensors, arrays, numbers, texts, booleans and None.

    `iteration` is how far the run is. What had the name before becomes iteration-N, of which the newest `keep` stay; of
    the same iteration it is replaced. A `best` that is not later than `latest` stays as EARLIER until the next
    `latest`, for `drop_beyond`, where the run goes on from there.
    """
    tensors: dict[str, Tensor] = {}
    structure = json.dumps(encode(state, "", tensors))
    check_header(tensors)
    whole = streamed.wholes(tensors if shards.any_in(tensors.values()) else {})
    try:
        if ranks.first():
            _write(folder, name, structure, tensors, whole, keep, iteration)
    finally:
        deque(whole, maxlen=0)  # all ranks gather what they share out to the end, also where nothing can be written


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
    for place in (path.parent, path):
        refuse_link(place)
    new = beside(path) / path.name  # in a folder of its own: the library follows links, and chooses permissions
    metadata = {"iteration": str(iteration)}
    if len(structure) <= HEADER // 100:
        metadata[STRUCTURE] = structure
    else:
        tensors[STRUCTURE] = torch.frombuffer(bytearray(structure, "utf-8"), dtype=torch.uint8)
    try:
        new.parent.mkdir(parents=True)
        _fill(new, tensors, whole, metadata)
        keep_umask(new)
        to_disk(new)
        _step_aside(folder, path, keep, iteration)
        os.replace(new, path)
        to_disk(path.parent)
        if name == "latest":
            for old in _older(path.parent)[keep:]:
                old.unlink()
            remove(_path(folder, EARLIER))
        new.parent.rmdir()
    except (OSError, SafetensorError) as error:
        remove(new.parent)
        kept = "the checkpoint before it is kept, to resume from"
        none = "there is none before it: make room, and resume starts the run again"
        raise UserError(f"cannot write {path}: {why(error)}; {kept if resumable(folder) else none}") from None


def _fill(path: Path, tensors: dict[str, Tensor], whole: Iterable[Tensor], metadata: dict[str, str]) -> None:
    """Write tensors, and their checksum, into a new file."""
    if shards.any_in(tensors.values()):
        _stream(path, tensors, whole, metadata)
    else:
        own = _own_memory(tensors)
        save_file(own, path, metadata | {"checksum": _checksum(metadata, own)})


def _stream(path: Path, tensors: Mapping[str, Tensor], whole: Iterable[Tensor], metadata: dict[str, str]) -> None:
    """The same file of tensors that ranks share out; its checksum is taken from what was written."""
    streamed.write(path, streamed.sizes(tensors), whole, metadata | {"checksum": streamed.UNSEALED})
    with safe_open(path, framework="pt") as file:
        checksum = _checksum(metadata, tensors, file.get_tensor)
    streamed.seal(path, checksum)


def check_header(tensors: Mapping[str, Tensor]) -> None:
    """Raises: UserError where there are too many tensors to be named in one file."""
    if sum(len(json.dumps(name)) + 100 + 20 * x.dim() for name, x in tensors.items()) > 0.9 * HEADER:
        name, count = Counter(name.split("/")[1:3][-1] for name in tensors).most_common(1)[0]
        raise UserError(
            f"{name} has {count:,} tensors, of {len(tensors):,} in all, more than a checkpoint can name: keep "
            "fewer, or make one of many with torch.stack"
        )


def load(folder: str | Path, name: str = "latest", tidy: bool = False) -> State:
    """Read a checkpoint back, tensors on the CPU; for a damaged or missing latest, the newest good one before it.

    One line says when another stands in. tidy: set the damaged file aside as `NAME.damaged`; else nothing is written.
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
            said = "; ".join(damaged.values()) or f"{path} is missing"
            warn(f"{said}: going on from {candidate.stem}")
        return state
    if damaged:
        remedy = "start the run again" if name == "latest" else "use another checkpoint of the run, such as latest"
        raise UserError(f"{'; '.join(damaged.values())}: there is no good one to use instead; {remedy}")
    there = [p.stem for p in sorted(path.parent.glob("[!.]*.safetensors"))]
    raise UserError(f"{folder} has no checkpoint '{name}': there are {', '.join(there) or 'none'}")


def drop_beyond(folder: str | Path, iteration: int) -> int | None:
    """Remove a `best` of a later iteration than this, from which a run goes on; the one before it is put in its place.

    Returns what it was of, where none was kept.
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
    """Where a part of a checkpoint cannot be put back, one line says so: the part is not one of this run."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        words = f"{type(error).__name__}: {one_line(error)}"[:200]
        raise UserError(
            f"{folder}: '{part}' of its checkpoint does not fit this run ({words}): the checkpoint was changed, or is "
            "another run's; start a new run"
        ) from error


def resumable(folder: str | Path) -> bool:
    """Whether there is a checkpoint to go on from, good or not; `best` is not one: the run was further."""
    path = _path(folder, "latest")
    return os.path.lexists(path) or bool(_older(path.parent))


def _path(folder: str | Path, name: str) -> Path:
    return Path(folder) / "checkpoints" / f"{name}.safetensors"


def _older(folder: Path) -> list[Path]:
    """The files iteration-N, the newest first."""
    try:
        found = {path: re.fullmatch(r"iteration-(\d+)", path.stem) for path in folder.glob("iteration-*.safetensors")}
    except OSError:  # the folder was removed in between, or may not be read
        return []
    return sorted((path for path, name in found.items() if name), key=lambda path: -int(path.stem[10:]))


def _iteration(path: Path) -> int | None:
    """The iteration that a checkpoint is of; None where that is unknown."""
    try:
        _check_file(path)
        with safe_open(path, framework="pt") as file:
            return int((file.metadata() or {})["iteration"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _step_aside(folder: str | Path, path: Path, keep: int, iteration: int) -> None:
    """What has the name of a new checkpoint gets another one, where it is kept."""
    if path.stem == "best" and _up_to(path, _iteration(_path(folder, "latest"))):
        os.replace(path, _path(folder, EARLIER))
    before = _iteration(path) if keep else None
    if before not in (None, iteration):
        os.replace(path, _path(folder, f"iteration-{before}"))


def _up_to(path: Path, iteration: int | None) -> bool:
    """Whether there is a checkpoint that is of this iteration at the latest."""
    found = _iteration(path)
    return found is not None and iteration is not None and found <= iteration


def _set_aside(damaged: Iterable[Path]) -> None:
    """Take damaged files out of the way, and lose nothing."""
    for path in damaged:
        with suppress(OSError):  # such as a folder that may only be read
            os.replace(path, path.with_suffix(".damaged"))


def _read(path: Path) -> State:
    try:
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
        state = decode(parse(structure), tensors)
    except (KeyError, TypeError, ValueError, RuntimeError):  # it was changed, and its checksum with it
        raise Damaged("its structure and its tensors do not fit") from None
    if not isinstance(state, dict):
        raise Damaged("it is not a checkpoint of rlkit")
    return state


def _check_file(path: Path) -> int:
    """The size of what is really a file; nothing is read of a pipe or a device, which would never end."""
    with opened(path) as file:
        return os.fstat(file.fileno()).st_size


def _own(x: Tensor) -> Tensor:
    """A copy: the file's own memory is not aligned as torch aligns, and some kernels round by alignment.

    Of what ranks share out each copies its part later.
    """
    return x if ranks.layered() and x.nbytes >= PAGED else x.clone()


def _checksum(
    metadata: dict[str, str], tensors: Mapping[str, Tensor], get: Callable[[str], Tensor] | None = None
) -> str:
    """Over the metadata and all tensors; `get` reads one where not all of them are in memory."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        x = tensors[name] if get is None else get(name)
        digest.update(f"\n{name} {x.dtype} {tuple(x.shape)}\n".encode())
        digest.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _own_memory(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU that share memory with nothing: safetensors refuses views and ties."""
    seen: set[int] = set()
    for name, x in tensors.items():
        x = x.detach().cpu().contiguous()
        storage = x.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != x.nbytes or 0 in x.stride():
            x = x.clone(memory_format=torch.contiguous_format)
        seen.add(x.untyped_storage().data_ptr())
        tensors[name] = x
    return tensors
