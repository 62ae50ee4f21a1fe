"""A run on a machine that shares no files with the one that asked for it: what that machine does when it is asked.

It knows nothing of Ray: all it needs is that a method of an object on another machine can be called. Neither torch
nor the comparison is imported, so that it starts at once.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rlkit.comparison import keeper, parcel
from rlkit.disk import reason
from rlkit.errors import UserError
from rlkit.installed import installed

PATIENCE = 10.0  # seconds that a run gets to write its checkpoint before it is killed
CHUNK = 1 << 23  # bytes that travel at once
OUTGOING, INCOMING = "outgoing.tar", "incoming.tar"


@dataclass(frozen=True)
class Arrived:
    """Where a run will lie."""

    machine: str
    root: str  # the folder that stands for / there
    versions: dict[str, str]


@dataclass(frozen=True)
class News:
    """What has happened since the last time."""

    code: int | None  # of the run's process, once it has ended
    metrics: bytes  # whole lines
    anew: bool  # they stand in the place of all lines before
    console: bytes
    checkpoint: int  # when the newest one was written; 0: none


class Host:
    """A temporary folder that holds one run, and the process that carries it out."""

    def __init__(self) -> None:
        self.root = Path(os.path.realpath(tempfile.mkdtemp(prefix="rlkit-")))
        command = [sys.executable, "-I", "-S", keeper.__file__, str(self.root), str(PATIENCE)]
        self.keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.keeper.wait()  # it goes on as a process of its own
        self.folder, self.console = self.root, self.root / "console"
        self.at = {"metrics": 0, "console": 0}
        # metrics.jsonl as it came: what is left of it shows when it changes
        self.before: tuple[int, int] | None = (0, 0)
        self.code: int | None = None

    def arrive(self) -> Arrived:
        return Arrived(socket.gethostname(), str(self.root), versions())

    def receive(self, data: bytes) -> None:
        """The next bytes of a parcel."""
        with open(self.root / INCOMING, "ab") as file:
            file.write(data)

    def unpack(self, place: str) -> None:
        """Open the parcel that has come in a folder, which is named as where it came from."""
        folder = self.inside(place)
        folder.mkdir(parents=True, exist_ok=True)
        parcel.unpack(self.root / INCOMING, folder)
        (self.root / INCOMING).unlink()

    def inside(self, place: str) -> Path:
        return self.root / place.lstrip("/")

    def lacking(self, marks: Mapping[str, str], directory: str) -> list[str]:
        """The files, folders and modules that are not here as they are where the run was asked for."""
        from rlkit.settings import places

        sys.path.insert(0, str(self.inside(directory)))
        try:
            return [name for name, mark in marks.items() if places.mark(name) != mark]
        finally:
            del sys.path[0]

    def start(self, folder: str, directory: str, config: str, here: bool) -> None:
        """Begin the run, or go on with it, where its folder has come. here: it imports from its directory.

        Its config.yaml is what the comparison has checked, the code that it names is what came with it, and `rlkit.run`
        sees to it that nothing has changed. So what it would run is what the user asked to be run.
        """
        self.folder = self.inside(folder)
        for path in (self.folder, self.inside(directory)):
            path.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.yaml").write_text(config, encoding="utf-8")
        metrics = self.folder / "metrics.jsonl"
        self.before = stamp(metrics)
        words = [f"resume={self.folder}", "trust=true"]
        asked = {
            "command": [sys.executable, *([] if here else ["-P"]), "-m", "rlkit.run", *words],
            "directory": str(self.inside(directory)),
            "console": str(self.console),
            "variables": {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        }
        self.tell(json.dumps(asked))

    def stop(self) -> None:
        """Let the run write a checkpoint and end."""
        self.tell("null")

    def close(self) -> None:
        """Let go of the run, if it is still there, and of the folder; so does the end of this process."""
        assert self.keeper.stdin is not None, "it is a pipe"
        self.keeper.stdin.close()

    def tell(self, line: str) -> None:
        assert self.keeper.stdin is not None, "it is a pipe"
        with suppress(OSError):  # it is gone, and `look` says so
            self.keeper.stdin.write(f"{line}\n".encode())

    def look(self, seconds: float) -> News:
        """What is new, at the latest after so many seconds, and at once when the run has ended."""
        assert self.keeper.stdout is not None, "it is a pipe"
        if self.code is None and select.select([self.keeper.stdout], [], [], seconds)[0]:
            self.code = int(self.keeper.stdout.read(100) or b"-9")  # nothing: the keeper was killed
        over, anew = self.code is not None, False
        metrics = self.folder / "metrics.jsonl"
        if self.before is not None and (anew := stamp(metrics) != self.before):
            self.before = None
        new = b"" if self.before is not None else self.lines("metrics", metrics, over)
        return News(self.code, new, anew, self.lines("console", self.console, over), stamp(self.newest)[0])

    @property
    def newest(self) -> Path:
        return self.folder / "checkpoints" / "latest.safetensors"

    def lines(self, name: str, path: Path, over: bool) -> bytes:
        """The whole lines that a file has got, and the rest when it gets no more."""
        try:
            with open(path, "rb") as file:
                file.seek(self.at[name])
                data = file.read(CHUNK)
        except FileNotFoundError:
            return b""
        end = len(data) if over else data.rfind(b"\n") + 1
        self.at[name] += end
        return data[:end]

    def pack(self) -> tuple[int, str]:
        """Make a parcel of the run folder as it is now: its bytes, and their SHA-256."""
        path = self.root / OUTGOING
        try:
            sizes = parcel.pack(self.folder, path)
            if self.before is None:
                self.at["metrics"] = sizes.get("metrics.jsonl", 0)  # what is in the parcel is not news
            with open(path, "rb") as file:
                return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UserError(f"{socket.gethostname()}: {reason(error)}; its run cannot be sent") from None

    def chunk(self, start: int) -> bytes:
        """Some bytes of that parcel."""
        with open(self.root / OUTGOING, "rb") as file:
            file.seek(start)
            return file.read(CHUNK)


def stamp(path: Path) -> tuple[int, int]:
    """By which a change of a file is noticed; zeros where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def versions() -> dict[str, str]:
    """What must be the same on all machines, for one run to be the same on each."""
    return {
        "Python": platform.python_version(),
        "rlkit": installed(),
        "torch": importlib.metadata.version("torch").partition("+")[0],  # whether for CUDA or not
    }
