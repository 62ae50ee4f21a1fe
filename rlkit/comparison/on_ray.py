"""The same grid on a Ray cluster: each run has an actor on one of its machines, which need not share any files."""

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rlkit.api import UserError
from rlkit.comparison import away, on_node, parcel, warm
from rlkit.comparison.grid import Job
from rlkit.comparison.luggage import cpus, gpus, inside
from rlkit.errors import one_line

POLL = 0.2  # seconds between two looks at whether to stop, while a machine is waited for
ANSWER = 10.0  # seconds in which a cluster answers at its address, or is down
PROBED = 120.0  # seconds in which all machines say what they have
SILENT = 60.0  # seconds that a machine may stay silent when the run is to stop


class Cluster:
    """The cluster of RAY_ADDRESS, or the one that runs on this machine, or one that is started here.

    Raises: UserError without Ray, where no cluster answers, and where one of its machines has other versions.
    """

    def __init__(self) -> None:
        self.ray, self.at_hand = joined(), threading.Lock()
        self.packed: dict[tuple[Path, ...], list[object]] = {}
        self.check_versions()

    def check_versions(self) -> None:
        """Ask every machine what it has: a run would be another one there."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asked = self.ray.remote(num_cpus=0)(probe())
        ids = {node["NodeID"]: node["NodeManagerHostname"] for node in self.nodes()}
        on = [NodeAffinitySchedulingStrategy(id, soft=True) for id in ids]
        try:
            found = self.ray.get([asked.options(scheduling_strategy=each).remote() for each in on], timeout=PROBED)
        except self.ray.exceptions.RayError as error:
            raise UserError(f"no Ray cluster: its machines do not answer ({type(error).__name__}); fix it") from None
        for machine, versions in zip(ids.values(), found, strict=True):
            away.check_versions(on_node.Arrived(machine, "", versions))

    def nodes(self) -> list[dict[str, Any]]:  # Ray's have no types
        return [node for node in self.ray.nodes() if node["Alive"]]

    def room(self, jobs: Sequence[Job]) -> int:
        """How many of these runs the machines hold at a time.

        Raises: UserError where none holds even one, or where a GPU is named that Ray gives out.
        """
        for device in {job.config["run"]["device"] for job in jobs}:
            if ":" in device:
                raise UserError(f"device={device}: on a Ray cluster each run gets a GPU of its own: give device=cuda")
        held = [node["Resources"] for node in self.nodes()]
        wanted = {tuple(needs(job).items()) for job in jobs}
        found = {each: sum(min(int(node.get(kind, 0) // n) for kind, n in each) for node in held) for each in wanted}
        for each, count in found.items():
            if not count:
                told = " and ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in each)
                raise UserError(f"no machine of the Ray cluster has {told} for a run: give other threads= or device=")
        return max(found.values())

    def execute(self, job: Job, stop: Path) -> tuple[int, str]:
        """A run to its end, as `grid.execute` does it here."""
        return away.execute(job, stop, self)

    @contextmanager
    def host(self, job: Job, stop: Path) -> Iterator[away.Host]:
        """An actor that has what the job needs."""
        needed = needs(job)
        actor = self.ray.remote(on_node.Host).options(
            num_cpus=needed["CPU"], num_gpus=needed.get("GPU", 0), max_restarts=0, max_task_retries=0
        )
        remote = Remote(self.ray, actor.remote(), stop)
        try:
            yield remote
        finally:
            self.ray.kill(remote.actor)

    def goods(self, paths: tuple[Path, ...]) -> away.Parcel:
        """Files that are sent along, packed once for all runs that name the same."""
        with self.at_hand:
            if paths not in self.packed:
                self.packed[paths] = list(self.put(paths)) if paths else []
            return self.packed[paths]

    def put(self, paths: tuple[Path, ...]) -> Iterator[object]:
        with tempfile.TemporaryDirectory(prefix="rlkit-") as folder:
            path = Path(folder, "goods")
            try:
                parcel.pack_files(dict(each for path in paths for each in inside(path)).items(), path)
            except OSError as error:
                raise UserError(f"what the run names cannot be sent along: {one_line(error)}") from None
            for data in away.chunks(path):
                yield self.ray.put(data)


class Remote:
    """An `on_node.Host` in an actor."""

    def __init__(self, ray: Any, actor: Any, stop: Path) -> None:
        self.ray, self.actor, self.stopping = ray, actor, stop
        self.placed = False

    def ask(self, method: str, *given: object) -> Any:
        """Call it. Raises: Lost, Withdrawn, and UserError for what went wrong there."""
        errors, began = self.ray.exceptions, time.monotonic()
        answer = getattr(self.actor, method).remote(*given)
        while not self.ray.wait([answer], timeout=POLL)[0]:
            if not self.stopping.exists():
                began = time.monotonic()
            elif not self.placed:
                raise away.Withdrawn
            elif time.monotonic() - began > SILENT:
                raise away.Lost(f"its machine did not answer within {SILENT:g} seconds")
        try:
            found = self.ray.get(answer)
        except errors.RayTaskError as error:
            raise UserError(f"on its machine: {one_line(error.cause)}") from None
        except errors.RayError as error:
            raise away.Lost(f"its machine or its worker there is gone ({type(error).__name__})") from None
        self.placed = True
        return found

    def arrive(self) -> on_node.Arrived:
        found: on_node.Arrived = self.ask("arrive")
        return found

    def receive(self, data: object) -> None:
        self.ask("receive", data)

    def unpack(self, place: str) -> None:
        self.ask("unpack", place)

    def lacking(self, marks: Mapping[str, str], directory: str) -> list[str]:
        found: list[str] = self.ask("lacking", marks, directory)
        return found

    def start(self, folder: str, directory: str, config: str, here: bool) -> None:
        self.ask("start", folder, directory, config, here)

    def stop(self) -> None:
        self.ask("stop")

    def look(self, seconds: float) -> on_node.News:
        found: on_node.News = self.ask("look", seconds)
        return found

    def pack(self) -> tuple[int, str]:
        found: tuple[int, str] = self.ask("pack")
        return found

    def chunk(self, start: int) -> bytes:
        found: bytes = self.ask("chunk", start)
        return found


def needs(job: Job) -> dict[str, int]:
    """What Ray sets aside for a run."""
    return {"CPU": cpus(job)} | ({"GPU": gpus(job)} if gpus(job) else {})


def joined() -> Any:
    """Ray, connected."""
    try:
        import ray
        from ray import is_initialized  # a folder of that name here has none
    except ImportError:
        raise UserError("workers=ray needs Ray: pip install -e '.[ray]', or give workers=N") from None
    if is_initialized():
        return ray
    check_answers(os.environ.get("RAY_ADDRESS", ""))
    leave = signal.getsignal(signal.SIGTERM)
    try:
        # Ray puts the folder in which it starts first on the path of its workers, whatever the path here is.
        with nullcontext() if warm.imports_from(os.getcwd()) else chdir(sys.prefix):
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"no Ray cluster: {one_line(error)}; fix RAY_ADDRESS or unset it") from None
    finally:
        if leave is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, leave)  # Ray's own would end the program without a checkpoint
    return ray


def check_answers(address: str) -> None:
    """Refuse an address at which nobody answers: Ray itself would try for minutes, and then end the program."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"no Ray cluster: nobody answers at {address} ({one_line(error)}); fix RAY_ADDRESS or unset it"
        ) from None


def probe() -> Any:
    """A function that travels whole, as one that stands in a module does not: a machine may have no rlkit."""

    def versions() -> dict[str, str]:
        import platform

        try:
            from rlkit.comparison import on_node
        except ImportError:  # none, or an older one
            return {"Python": platform.python_version()}
        return on_node.versions()

    return versions
