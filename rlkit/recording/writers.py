"""The files that a run grows, JSON lines and TensorBoard's, and Weights & Biases where it is asked for."""

import importlib.util
import io
import json
import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypedDict

import yaml

from rlkit.api import UserError
from rlkit.recording.files import reason, write_atomically

UPLOAD = 60.0  # seconds that the end of a run waits for W&B; what is not sent by then stays in the folder

BINARY = getattr(os, "O_BINARY", 0)  # Windows would write \r\n for \n, in the middle of an event, too


class File:
    """A file that only grows and is whole after every write; it is made with the first one."""

    def __init__(self, path: Path) -> None:
        self.path, self.handle = path, -1

    def write(self, data: bytes) -> None:
        try:
            if self.handle < 0:
                self.handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | BINARY, 0o666)
            while data:
                data = data[os.write(self.handle, data) :]
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {reason(error)}") from None

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


class Lines(File):
    """One JSON object per line."""

    def add(self, record: Mapping[str, object]) -> None:
        self.write((json.dumps(finite(record), ensure_ascii=False) + "\n").encode())


class Events(File):
    """Scalars for TensorBoard. Only its record format is imported: its own writer would look for TensorFlow."""

    def __init__(self, folder: Path, env_steps: int) -> None:
        super().__init__(folder / f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}")
        self.resumed_at = env_steps

    def add(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self.handle < 0:
            self._event(file_version="brain.Event:2")
            if self.resumed_at:  # what an earlier file says of later steps counts no longer
                self._event(step=self.resumed_at + 1, session_log=SessionLog(status=SessionLog.START))
        values = [Summary.Value(tag=key, simple_value=x) for key, x in metrics.items()]
        self._event(step=env_steps, summary=Summary(value=values))

    def _event(self, **fields: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        buffer = io.BytesIO()
        RecordWriter(buffer).write(Event(wall_time=time.time(), **fields).SerializeToString())
        self.write(buffer.getvalue())


class Reached(TypedDict, total=False):
    """What a line of metrics.jsonl says of the run's progress, beside its metrics."""

    iteration: int
    env_steps: int
    seconds: float


def cut(path: Path, iteration: int) -> Reached:
    """Drop the lines after `iteration`, and a torn last one; return the last that stays."""
    kept: list[str] = []
    last: Reached = {}
    if not path.exists():
        return last
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # torn by a power cut
            continue
        if record["iteration"] <= iteration:
            kept.append(f"{line}\n")
            last = record
    write_atomically(path, "".join(kept))
    return last


def finite(value: object) -> object:
    """JSON has no nan and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Tracker(Protocol):
    """Where the figures of a run go besides its folder. Whatever it raises is told once and ends only the tracking."""

    def add(self, iteration: int, env_steps: int, metrics: Mapping[str, float]) -> None: ...
    def summary(self, values: Mapping[str, object]) -> None: ...
    def close(self, failed: bool) -> None: ...


def check_tracker(name: str) -> None:
    """Refuse `logger=NAME` where its package is missing, before a run's folder is made."""
    if name == "wandb" and importlib.util.find_spec("wandb") is None:
        raise UserError("logger=wandb needs a package that is not installed: pip install wandb, or logger=none")


def tracker(name: str, folder: Path, text: str) -> Tracker | None:
    """The tracker that `logger=NAME` asks for; `text` is config.yaml, which goes along."""
    return WandB(folder, text) if name == "wandb" else None


class WandB:
    """A run of Weights & Biases: the configuration, each logged iteration and the summary; no code, no console output.

    Its id stays in the folder, so that a resumed run goes on in the same one; iterations that it knows already are
    ignored there, and a resumed run repeats them bit by bit. WANDB_PROJECT (default: rlkit), WANDB_ENTITY and
    WANDB_MODE=offline mean what they mean everywhere.
    """

    def __init__(self, folder: Path, text: str) -> None:
        import wandb

        kept = folder / "wandb.id"
        try:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "rlkit"),
                name=folder.resolve().name,
                id=kept.read_text().strip() if kept.is_file() else None,
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
