"""The append-only files of a run (JSON lines, TensorBoard events), and Weights & Biases if asked for."""

import importlib.util
import io
import json
import math
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

import yaml

from rlkit.api import UserError
from rlkit.disk import BINARY, NO_LINK
from rlkit.recording.files import (
    NO_WAIT,
    is_file,
    is_number,
    opened,
    parse,
    read_text,
    reason,
    remove,
    replacing,
    there,
    write_atomically,
)

UPLOAD = 60.0  # seconds that the end of a run waits for W&B; data not sent by then stay in the folder
LONGEST = 1 << 22  # most bytes of a line; a longer line is not a record
PIECES = 64  # so many pieces of that length are read to find the end of a line


class File:
    """An append-only file that is complete after every write; the first write creates it."""

    def __init__(self, path: Path) -> None:
        self.path, self.handle = path, -1

    def write(self, data: bytes) -> None:
        try:
            if self.handle < 0:
                how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK | NO_WAIT | BINARY
                self.handle = os.open(self.path, how, 0o666)
            while data:
                data = data[os.write(self.handle, data) :]
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {reason(error)}") from None

    def sync(self) -> None:
        """Have it on the disk, whatever happens to the machine."""
        if self.handle >= 0:
            try:
                os.fsync(self.handle)
            except OSError as error:
                raise UserError(f"cannot write {self.path}: {reason(error)}") from None

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


class Lines(File):
    """One JSON object per line."""

    def add(self, record: Mapping[str, object]) -> None:
        self.write((json.dumps(finite(record), ensure_ascii=False) + "\n").encode("utf-8", "replace"))


@dataclass(frozen=True)
class Reached:
    """The progress of the run in a line of metrics.jsonl."""

    iteration: int = 0
    env_steps: int = 0
    seconds: float = 0.0


class Events(File):
    """Scalars for TensorBoard: the lines of metrics.jsonl, each exactly once.

    A resumed run gets one new file, made from the remaining lines; the earlier files are emptied. Only the record
    format is imported: TensorBoard's own writer would look for TensorFlow.
    """

    def __init__(self, folder: Path, began: float) -> None:
        with there(folder):
            before = sorted(folder.glob("events.out.tfevents.*"), key=_number)
        # TensorBoard reads the files in the order of their names; this keeps the new file last if the clock went back.
        number = max([int(time.time()), *(_number(path) + 1 for path in before)])
        super().__init__(folder / f"events.out.tfevents.{number:010d}.{socket.gethostname()}.{os.getpid()}")
        self.began = began  # time.time() at second 0 of the run
        if before:
            with replacing(self.path) as file:
                file.write(_first())
                for line in records(folder / "metrics.jsonl"):
                    file.write(self._scalars(reached(line), line))
            for path in before[:-1]:
                remove(path)
            _empty(before[-1])

    def add(self, line: Mapping[str, object]) -> None:
        """Add one line of metrics.jsonl."""
        if self.handle < 0 and not self.path.exists():
            self.write(_first())
        self.write(self._scalars(reached(line), line))

    def _scalars(self, at: Reached, line: Mapping[str, object]) -> bytes:
        from tensorboard.compat.proto.summary_pb2 import Summary

        metrics = {key: x for key, x in line.items() if key not in KEYS and isinstance(x, int | float | None)}
        values = [
            Summary.Value(tag=whole(key), simple_value=x if is_number(x) else math.nan)  # JSON: null for nan, infinity
            for key, x in metrics.items()
        ]
        return _event(wall_time=self.began + at.seconds, step=at.env_steps, summary=Summary(value=values))


def whole(name: str) -> str:
    """A name that may stand in any file: JSON's escapes can write half of a character, which no other format has."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _empty(path: Path) -> None:
    """Empty a file instead of removing it: an open TensorBoard goes on reading a removed file.

    Links, and files with a second hard link, are removed instead: the other file keeps its content.
    """
    with there(path):
        now = path.lstat()
        if stat.S_ISREG(now.st_mode) and now.st_nlink == 1:
            os.truncate(path, 0)
        else:
            remove(path)


def _first() -> bytes:
    """The first records of a file: the version, and a marker by which an open TensorBoard discards earlier data."""
    from tensorboard.compat.proto.event_pb2 import SessionLog

    now = time.time()
    return _event(wall_time=now, file_version="brain.Event:2") + _event(
        wall_time=now, session_log=SessionLog(status=SessionLog.START)
    )


def _event(**fields: object) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    RecordWriter(buffer).write(Event(**fields).SerializeToString())
    return buffer.getvalue()


def _number(path: Path) -> int:
    """The second in the name of an event file; 0 for files of other writers."""
    found = re.match(r"events\.out\.tfevents\.(\d{1,11})\.", path.name)
    return int(found[1]) if found else 0


KEYS = tuple(field.name for field in fields(Reached))


def reached(line: Mapping[str, object]) -> Reached:
    """The progress in a line; invalid values count as 0."""
    told = [x if is_number(x) and 0 <= x < 2**53 else 0.0 for x in (line.get(key) for key in KEYS)]
    return Reached(int(told[0]), int(told[1]), told[2])


def records(path: Path) -> Iterator[dict[str, object]]:
    """The records among the lines: objects with an iteration. Other lines, and an incomplete last one, are skipped."""
    for _, found in lines(path):
        if found is not None:
            yield found


def lines(path: Path) -> Iterator[tuple[bytes, dict[str, object] | None]]:
    """Each line, read one at a time, with the record in it or None."""
    return ((line, record(line)) for line in pieces(path))


def pieces(path: Path) -> Iterator[bytes]:
    """The lines of a file, long ones in pieces; nothing where there is no file.

    Reading ends early inside a line that has no end: a sparse file of zeros may be larger than every disk.
    """
    if not is_file(path):
        if os.path.lexists(path):
            raise UserError(f"{path} is not a file: remove it, and what it should hold is written anew")
        return
    endless = 0
    with there(path), opened(path) as file:
        while (line := file.readline(LONGEST)) and endless < PIECES:
            endless = 0 if line.endswith(b"\n") else endless + 1
            yield line


def record(line: bytes) -> dict[str, object] | None:
    """The record in a line of metrics.jsonl or completions.jsonl, None where it is incomplete or foreign."""
    try:
        found = parse(line) if line.endswith(b"\n") else None
    except ValueError:  # incomplete after a power cut, or never from rlkit
        return None
    return found if isinstance(found, dict) and type(found.get("iteration")) is int else None


def cut(path: Path, iteration: int) -> Reached:
    """Remove lines after `iteration` and lines that are not records; return the progress of the last one kept."""
    # A file with a second hard link is copied first: new lines must not appear in the other one.
    last, whole = Reached(), not is_file(path) or path.stat().st_nlink == 1
    for _, found in lines(path):
        whole = whole and found is not None and reached(found).iteration <= iteration
        if found is not None and reached(found).iteration <= iteration:
            last = reached(found)
    if not whole:
        with replacing(path) as file:
            for line, found in lines(path):
                if found is not None and reached(found).iteration <= iteration:
                    file.write(line)
    return last


def finite(value: object) -> object:
    """Replace nan and infinity by null, as JSON has neither."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Tracker(Protocol):
    """An external service for the metrics of a run. An exception is reported once and ends only the tracking."""

    def add(self, iteration: int, env_steps: int, metrics: Mapping[str, float]) -> None: ...
    def summary(self, values: Mapping[str, object]) -> None: ...
    def close(self, failed: bool) -> None: ...


def check_tracker(name: str) -> None:
    """Refuse `logger=NAME` where its package is missing, before the run's folder is created."""
    if name != "wandb":
        return
    found = importlib.util.find_spec("wandb")
    if found is None or found.origin is None:  # the folder `wandb` that wandb writes is not the package
        raise UserError("logger=wandb needs a package that is not installed: pip install wandb, or logger=none")


def tracker(name: str, folder: Path, text: str) -> Tracker | None:
    """The tracker for `logger=NAME`; `text` is config.yaml, which it uploads."""
    return WandB(folder, text) if name == "wandb" else None


class WandB:
    """A run in Weights & Biases: the configuration, each logged iteration and the summary; no code, no console output.

    Its id is stored in the folder, so a resumed run continues the same W&B run. Iterations that W&B already has are
    ignored there; a resumed run repeats them exactly. WANDB_PROJECT (default: rlkit), WANDB_ENTITY and
    WANDB_MODE=offline have their usual meaning.
    """

    def __init__(self, folder: Path, text: str) -> None:
        import wandb

        kept = folder / "wandb.id"
        try:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "rlkit"),
                name=folder.resolve().name,
                id=read_text(kept).strip() if is_file(kept) else None,
                resume="allow",
                dir=str(folder),
                config=yaml.safe_load(text),
                settings=wandb.Settings(
                    console="off", quiet=True, disable_git=True, save_code=False, finish_timeout=UPLOAD
                ),
            )
        except wandb.Error as error:
            words = " ".join(str(error).split())
            raise UserError(
                f"logger=wandb cannot start: {words} WANDB_MODE=offline needs no login, logger=none sends nothing"
            ) from None
        write_atomically(kept, f"{self.run.id}\n")

    def add(self, iteration: int, env_steps: int, metrics: Mapping[str, float]) -> None:
        self.run.log({"env_steps": env_steps, **metrics}, step=iteration)

    def summary(self, values: Mapping[str, object]) -> None:
        self.run.summary.update(finite(values))

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))
