"""One run of the grid on a machine that shares no files with this one: it is sent there, watched, and brought home.

Its folder here is always one that a run may go on from: it holds what a process
that was killed would have left.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from filelock import Timeout

from rlkit.comparison import on_node, parcel, warm
from rlkit.comparison.grid import TAKEN, Job, held, tail
from rlkit.comparison.luggage import config_text, luggage, refuse_lacking
from rlkit.errors import UserError
from rlkit.recording.files import no_link, prepare_folder, remove, write_atomically

LOOK = 1.0  # seconds between two looks at a run
TRIES = 3  # machines that may be lost under one run
OFTEN = 60.0  # seconds between two checkpoints that come home
SHARE = 0.05  # and of the time, how much may go into bringing them
Parcel = Iterable[object]  # what `Host.receive` takes, one after the other


class Lost(Exception):
    """The machine of a run is gone, or the process on it through which the run was watched."""


class Withdrawn(Exception):
    """The run was asked to stop before a machine had room for it."""


class Host(Protocol):
    """`on_node.Host`, wherever it is. Each call may raise Lost, Withdrawn, and UserError for what went wrong there."""

    def arrive(self) -> on_node.Arrived: ...
    def receive(self, data: object) -> None: ...
    def unpack(self, place: str) -> None: ...
    def lacking(self, marks: Mapping[str, str], directory: str) -> list[str]: ...
    def start(self, folder: str, directory: str, config: str, here: bool) -> None: ...
    def stop(self) -> None: ...
    def look(self, seconds: float) -> on_node.News: ...
    def pack(self) -> tuple[int, str]: ...
    def chunk(self, start: int) -> bytes: ...


class Machines(Protocol):
    """Where runs can be carried out."""

    def host(self, job: Job, stop: Path) -> AbstractContextManager[Host]:
        """One that has what the job needs; it is waited for."""

    def goods(self, paths: tuple[Path, ...]) -> Parcel:
        """Files and folders that are sent along."""


def execute(job: Job, stop: Path, machines: Machines) -> tuple[int, str]:
    """See a run to its end on a machine, or on another when that is lost: its exit code, and the last line of it."""
    prepare_folder(job.folder)
    try:
        with held(job.folder / ".lock"):
            for _ in range(TRIES):
                try:
                    with machines.host(job, stop) as host:
                        return Trip(job, stop, host).carry_out(machines)
                except Lost as error:
                    reason = str(error)
                    write_atomically(job.now, "lost")
                    append(job.console, f"rlkit: {reason}: it goes on elsewhere from what has come home\n".encode())
            return 1, f"lost {TRIES} times: {reason}"
    except UserError as error:
        return 1, str(error)
    except Withdrawn:
        return 1, "stopped"
    except Timeout:
        return 1, TAKEN


class Trip:
    """A run on one machine."""

    def __init__(self, job: Job, stop: Path, host: Host) -> None:
        self.job, self.stop, self.host = job, stop, host
        self.brought, self.next = 0, 0.0  # the checkpoint that came home, and when the next one may
        self.root = ""

    def carry_out(self, machines: Machines) -> tuple[int, str]:
        there = self.host.arrive()
        self.root = there.root
        check_versions(there)
        sent, needed = luggage(self.job)
        self.send(machines.goods(tuple(sorted(set(sent.values())))), "/")
        for name in self.host.lacking(needed, str(self.job.directory)) if needed else []:
            refuse_lacking(name, there.machine)
        self.send_folder()
        moved = config_text(self.job, self.root, [str(path) for path in sent.values()])
        here = str(self.job.directory)
        self.host.start(str(self.job.folder), here, moved, warm.imports_from(here))
        if not (self.job.folder / "config.yaml").is_file():  # without it, metrics.jsonl alone would be in the way
            write_atomically(self.job.folder / "config.yaml", config_text(self.job, "", ()))
        write_atomically(self.job.now, "running")
        return self.watch(), next(iter(reversed(tail(self.job.console))), "")

    def send(self, goods: Parcel, place: str) -> None:
        sent = False
        for data in goods:
            self.host.receive(data)
            sent = True
        if sent:
            self.host.unpack(place)

    def send_folder(self) -> None:
        """What has come home of the run before."""
        if not (self.job.folder / "config.yaml").is_file():
            return
        with package(self.job) as path:
            parcel.pack(self.job.folder, path)
            self.send(chunks(path), str(self.job.folder))

    def watch(self) -> int:
        """Follow the run until it has ended and its folder is home: its exit code."""
        asked = False
        self.next = time.monotonic() + OFTEN
        while (news := self.host.look(LOOK)).code is None:
            self.tell(news)
            if self.stop.exists() and not asked:
                self.host.stop()
                asked = True
            elif news.checkpoint not in (0, self.brought) and time.monotonic() > self.next:
                self.bring(news.checkpoint)
        while news.metrics or news.console:
            self.tell(news)
            news = self.host.look(0)
        self.bring(news.checkpoint)
        assert news.code is not None, "it has ended"
        return news.code

    def tell(self, news: on_node.News) -> None:
        """Let the folder here show how far the run is."""
        path = self.job.folder / "metrics.jsonl"
        if news.anew:
            remove(path)
        for file, data in ((path, news.metrics), (self.job.console, news.console)):
            if data:
                append(file, data.replace(self.root.encode(), b""))

    def bring(self, checkpoint: int) -> None:
        """Bring home what the run has written."""
        began = time.monotonic()
        size, digest = self.host.pack()
        with package(self.job) as path:
            found = hashlib.sha256()
            with open(path, "wb", opener=no_link) as file:
                while file.tell() < size and (data := self.host.chunk(file.tell())):
                    found.update(data)
                    file.write(data)
            if found.hexdigest() != digest:
                raise Lost("what came home of the run is not what was sent")
            parcel.bring(path, self.job.folder, self.root)
        took = time.monotonic() - began
        self.brought, self.next = checkpoint, time.monotonic() + max(OFTEN, took / SHARE)


@contextmanager
def package(job: Job) -> Iterator[Path]:
    """A file for a run folder on its way."""
    path = job.folder.with_name(f".{job.name}.parcel")
    try:
        yield path
    finally:
        remove(path)


def chunks(path: Path) -> Iterable[bytes]:
    with open(path, "rb") as file:
        while data := file.read(on_node.CHUNK):
            yield data


def check_versions(there: on_node.Arrived) -> None:
    """Refuse a machine on which the same run would be another one."""
    here = on_node.versions()
    for name, version in here.items():
        if (found := there.versions.get(name, "none")) != version:
            raise UserError(
                f"{there.machine} has {name} {found} and this machine {version}: install the same on all of the cluster"
            )


def append(path: Path, data: bytes) -> None:
    with open(path, "ab", opener=no_link) as file:
        file.write(data)
