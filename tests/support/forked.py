"""One warm process that has imported everything and forks a child for each command line: `Warm().run(Job(...))`.

A child has its own folder, its own limits of memory, time and file size, and its output in files; whoever waits for it
waits for its end, with a deadline. So a hundred command lines cost what one costs from cold.
"""

import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

MEMORY = 3 << 30  # bytes that a child may take beyond what the warm process has
BUSY = 60  # seconds of processor time
FILE = 1 << 28  # bytes of one file

Stage = Literal["whole", "built"]  # built: everything is read, checked and put together, and nothing is played


@dataclass(frozen=True)
class Job:
    """A command with its words, and how it is carried out."""

    words: tuple[str, ...]  # as after `python -m rlkit`
    folder: str  # where it starts
    stage: Stage = "whole"
    output: str = "files"  # files, or what is wrong with stdout: closed, full, broken, ascii
    environ: dict[str, str] = field(default_factory=dict)
    deadline: float = 60.0  # seconds until it counts as hanging
    patience: float | None = None  # seconds until a command that may take forever is ended without blame


@dataclass(frozen=True)
class End:
    """What became of it."""

    code: int  # the exit code; a signal's number with a minus
    out: str
    err: str
    seconds: float
    cpu: float
    why: Literal["ended", "hangs", "cut"] = "ended"


class Warm:
    """The client's side: a process that forks; it ends with the `with` block."""

    def __enter__(self) -> Self:
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        environ["OMP_STACKSIZE"] = "256K"  # threads=1024 must not meet the limit of memory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.forked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )
        return self

    def run(self, job: Job) -> End:
        """Carry a job out and wait for its end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the warm process has ended"
        return End(**json.loads(answer))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.process.kill()
        self.process.communicate()


class Built(BaseException):
    """Raised where the work would begin."""


def warm_up() -> None:
    """Import all that the commands import, so that no child has to."""
    import rlkit
    from rlkit.settings import plugins

    for module in pkgutil.walk_packages(list(rlkit.__path__)[:1], "rlkit."):  # beside it, in a checkout, lie others
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # an optional package, of a program that has a process
            if str(error.name).startswith("rlkit"):
                raise
    for kind in plugins.NOUN:
        for plugin in plugins.names(kind):  # type: ignore[arg-type]
            importlib.import_module(f"rlkit.{kind}.{plugin}")
    for name in (
        "matplotlib.figure",
        "matplotlib.backends.backend_agg",
        "tensorboard.summary.writer.event_file_writer",
    ):
        importlib.import_module(name)
    importlib.import_module("rlkit.text.problems").embedded()  # which are drawn once in a process
    gc.freeze()  # a collection in a child would copy all that is shared


def serve() -> None:
    """Answer each line on stdin, a job, with a line on stdout, its end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not an answer
    warm_up()
    for line in sys.stdin:
        answers.write(json.dumps(asdict(carried_out(Job(**json.loads(line))))) + "\n")
        answers.flush()


def carried_out(job: Job) -> End:
    """Fork a child, wait for it, and end what it started."""
    files = [Path(f"{job.folder}.{name}") for name in ("out", "err")]
    sys.stdout.flush()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        be_child(job, files)
    watched = os.pidfd_open(child)
    limit = job.deadline if job.patience is None else job.patience
    ended = bool(select.select([watched], [], [], limit)[0])
    os.close(watched)
    if not ended:
        end_group(child)
    _, status, used = os.wait4(child, 0)
    end_group(child)  # what it has started and left
    code = os.waitstatus_to_exitcode(status)
    hangs = (not ended and job.patience is None) or code == -signal.SIGXCPU
    why: Any = "hangs" if hangs else "ended" if ended else "cut"
    out, err = (path.read_bytes().decode("utf-8", "surrogateescape") for path in files)
    for path in files:
        path.unlink()
    return End(code, out, err, time.monotonic() - began, used.ru_utime + used.ru_stime, why)


def end_group(child: int) -> None:
    """End a child and whatever it started; each is the first of its own group."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def as_process(job: Job) -> End:
    """Carry a job out as a shell does, with a Python of its own."""
    words = [sys.executable, "-m", "rlkit", *job.words]
    if job.output == "closed":
        words = ["sh", "-c", 'exec "$0" "$@" >&-', *words]
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path), **job.environ}
    if job.output == "ascii":
        environ["PYTHONIOENCODING"] = "ascii"
    out: int = os.open("/dev/full", os.O_WRONLY) if job.output == "full" else subprocess.PIPE
    if job.output == "broken":
        reader, out = os.pipe()
        os.close(reader)
    began = time.monotonic()
    with subprocess.Popen(
        words,
        cwd=job.folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            told = process.communicate(timeout=job.deadline)
        except subprocess.TimeoutExpired:
            end_group(process.pid)
            told = process.communicate()
    if out != subprocess.PIPE:
        os.close(out)
    texts = [(text or b"").decode("utf-8", "surrogateescape") for text in told]
    seconds = time.monotonic() - began
    return End(process.returncode, *texts, seconds, 0.0, "hangs" if process.returncode == -signal.SIGKILL else "ended")


def be_child(job: Job, files: list[Path]) -> NoReturn:
    """Never returns: a child that did would be a second server."""
    code = 70
    try:
        os.setsid()
        for number, path in enumerate(files, start=1):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(handle, number)
            os.close(handle)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        bounded()
        os.chdir(job.folder)
        os.environ.update(job.environ)
        spoil(job.output)
        stop_before_work(job.stage)
        code = carry_out(list(job.words))
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                code = code or 120  # as Python itself ends then
        os._exit(code)


def bounded() -> None:
    """A child that goes wild must not take the machine with it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (BUSY, BUSY + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def spoil(output: str) -> None:
    """Make of stdout what it can be in a shell."""
    if output == "closed":  # >&-
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  # as Python has it then
    elif output == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    elif output == "broken":  # | head -0
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)
    elif output == "ascii" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="ascii", errors="strict")


def stop_before_work(stage: Stage) -> None:
    """Let a command end where it would begin to play, to start processes, to draw, or to wait for a browser."""
    from rlkit import session
    from rlkit.comparison import conduct, report
    from rlkit.pages import server
    from rlkit.tuning import conduct as tuning

    def built(*_: object, **__: object) -> NoReturn:
        raise Built

    if stage == "built":
        session.execute = conduct.carry_out = report.write = tuning.carry_out = built  # type: ignore[assignment]
    server.Server = asks_everything  # type: ignore[assignment, misc]


def asks_everything(site: Any, port: int) -> NoReturn:
    """In place of play's server: what its page asks for first."""
    from rlkit.api import UserError

    calls: list[tuple[Callable[[dict[str, Any]], object], dict[str, Any]]] = [
        (call, {}) for name, call in site.reads.items() if name != "frame"
    ]
    calls += [(call, {"episode": 0}) for name, call in site.writes.items() if name == "replay"]
    for call, request in calls:
        try:
            answer = call(request)
        except UserError:
            continue  # a 400 with one line
        json.dumps(answer if isinstance(answer, dict) else {}, allow_nan=False)
    raise Built


def carry_out(words: list[str]) -> int:
    """The command, as a shell starts it."""
    main = importlib.import_module("rlkit.__main__").main
    try:
        return int(main(words))
    except Built:
        return 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1


if __name__ == "__main__":
    serve()
