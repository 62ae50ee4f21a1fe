"""Many runs: each a process of its own, in a folder of its own, carried out, continued or waited for until it is done.

What a run has come to is read from its folder alone, so that every process that looks (this one, the next one
after a crash, a worker on another machine) sees the same.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from rlkit.api import UserError
from rlkit.comparison import warm
from rlkit.disk import check_same, forget_lock, note_lock, refuse_link
from rlkit.recording.files import no_link, opened, prepare_folder, read_object, there, why, write_atomically
from rlkit.settings import config, trust
from rlkit.settings.sections import Sections

State = Literal["waiting", "cut off", "elsewhere", "finished"]

# Keys that say where and how a run is computed and kept; all others say what it is.
PLACE = {"out", "device", "threads", "checkpoint_every", "keep", "logger"}
FAILED = (1, 2)  # exit codes of `rlkit.run`, below a line that says why; another one is not its own
TAKEN = "is being written by another process"  # what `rlkit.run` says of a folder that is locked
LEFT = "python -m rlkit.run resume="  # begins the last line of a run that a signal asked to leave
ASKED = "asked to leave by a signal, twice"
POLL = 0.2  # seconds between two looks at a process
PATIENCE = 10.0  # seconds that a run gets to write its checkpoint before it is killed


@dataclass(frozen=True)
class Job:
    """One run of the grid."""

    algo: str
    env: str
    seed: int
    folder: Path  # absolute; beside it lie NAME.txt, what the run printed, and NAME.now while it is carried out
    words: tuple[str, ...]  # KEY=VALUE of its command line, `out` left out
    config: Sections  # what its config.yaml holds, by section
    directory: Path  # where the command was given: paths in `words` start here

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def console(self) -> Path:
        return self.folder.with_name(f"{self.name}.txt")

    @property
    def now(self) -> Path:
        return self.folder.with_name(f"{self.name}.now")

    def command(self) -> list[str]:
        """The words for `rlkit.run`: start it, or go on where it was cut off.

        What is continued is trusted: its folder was compared with this job by `check` before any process started. Its
        config.yaml names the very plug-ins, rewards and environments that this command line names, and files among them
        are unchanged. So what it would run is what the user asked to be run.
        """
        if (self.folder / "config.yaml").is_file():
            outside = trust.outside(config.from_folder(self.folder))
            return [f"resume={self.folder}", *(["trust=true"] if outside else [])]
        return [*self.words, f"out={self.folder}"]


Execute = Callable[[Job, Path], tuple[int, str]]  # see a run to its end, or stop it: its exit code, and its last line


def state(job: Job) -> State:
    """What has become of a run, by its folder."""
    if is_locked(job.folder):
        return "elsewhere"
    if not (job.folder / "config.yaml").is_file():
        return "waiting"
    return "finished" if summary(job).get("finished") else "cut off"


def summary(job: Job) -> dict[str, object]:
    """The run's summary.json; empty where there is none that can be read."""
    try:
        return read_object(job.folder / "summary.json")
    except UserError:  # none, or a damaged one: the run is continued, and writes another
        return {}


def is_locked(folder: Path) -> bool:
    """Whether a process, of whomever, writes to a run folder now."""
    if (folder / ".lock").is_symlink() or not os.path.isfile(folder / ".lock"):  # none of ours
        return False
    try:
        with held(folder / ".lock"):
            return False
    except Timeout:
        return True


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock.

    Raises: Timeout where another process does, UserError where nobody can: a link, a file system without locks.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise
    except (OSError, NotImplementedError) as error:
        raise UserError(f"cannot lock {path}: {why(error)}; choose another out=") from None
    try:
        yield
    finally:
        lock.release()


def check(job: Job) -> None:
    """Refuse a folder that holds another run than the one that is asked for, or that is a link to elsewhere.

    Raises: UserError, naming the first key that differs.
    """
    if job.folder.is_symlink():
        raise UserError(f"{job.folder} is in the way: it is a link; choose another out=")
    refuse_link(job.console)
    refuse_another(job)
    if (job.folder / "config.yaml").is_file() or not job.folder.is_dir():
        return
    if any(not path.name.startswith(".") for path in job.folder.iterdir()):
        raise UserError(f"{job.folder} is in the way: it is not a run folder and not empty; choose another out=")


def refuse_another(job: Job) -> None:
    """Raises: UserError, naming the first key in which a folder holds another run."""
    if (found := another(job)) is not None:
        key, asked, other = found
        if key in job.config.get("marks", {}):
            raise UserError(f"{key} has changed since {job.folder} was made: delete that, or choose another out=")
        raise UserError(f"{job.folder} holds another run: {key}={other}, asked {key}={asked}; choose another out=")


def another(job: Job) -> tuple[str, object, object] | None:
    """The first key, or file, in which a folder holds another run: its name, what is asked for, and what is there."""
    path = job.folder / "config.yaml"
    if not path.is_file():
        return None
    there = config.from_folder(job.folder)
    marks = ((name, mark, there.marks.get(name)) for name, mark in job.config.get("marks", {}).items())
    changed = next((found for found in marks if found[1] != found[2]), None)
    found = difference(job.config, {s: there.section(s) for s in config.SECTIONS}) or changed
    held = {*there.run, *there.marks, *(f"{s}.{key}" for s in config.SECTIONS for key in there.section(s))}
    if found is not None and found[0] not in held:
        raise UserError(
            f"{path} has no {found[0]}: it was cut off, or another version of rlkit wrote it; delete {job.folder}, or "
            "choose another out="
        )
    return found


def difference(one: Sections, other: Sections) -> tuple[str, object, object] | None:
    """The first key in which two configurations are different runs, with both values."""
    for section in config.SECTIONS:
        a, b = one.get(section) or {}, other.get(section) or {}
        for key in [k for k in {**a, **b} if section != "run" or k not in PLACE]:
            if a.get(key) != b.get(key):
                return (key if section == "run" else f"{section}.{key}"), a.get(key), b.get(key)
    return None


def carry_out(job: Job, stop: Path, away: Execute | None = None) -> str | None:
    """See to it that a run is finished; None when it is, else the reason in one line.

    A run that was killed, or asked to leave, is continued once. A run that another process carries out is waited for:
    it may be the child of a comparison that was killed. As soon as the file `stop` exists, the run is stopped safely.

    away: what carries it out on another machine; it says when the run has begun there.
    """
    killed, told = False, ""
    try:
        while (where := state(job)) != "finished":
            if stop.exists():
                return "stopped"
            now = "elsewhere" if where == "elsewhere" else "waiting" if away else "running"
            check_same(job.folder.parent.parent)
            if now != told:
                write_atomically(job.now, now)
                told = now
            if where == "elsewhere":
                time.sleep(POLL)
                continue
            code, said = (away or execute)(job, stop)
            if state(job) in ("finished", "elsewhere") or stop.exists() or TAKEN in said:
                continue  # look again
            said = ASKED if said.startswith(LEFT) else said
            if killed or (code >= 0 and said != ASKED):
                return unfinished(job, code, said)
            killed = True
        return None
    finally:
        job.now.unlink(missing_ok=True)


def unfinished(job: Job, code: int, said: str) -> str:
    """Why a run that has ended is not finished. Raises: UserError on a full disk: its last line may be missing."""
    check_same(job.folder.parent.parent)
    if not said.startswith("rlkit: "):
        prepare_folder(job.folder.parent)
    if code < 0:
        return f"signal {-code}"
    if code not in FAILED:
        return f"exit code {code}" + f", and its last line is: {said}" * bool(said)
    return said or f"cannot write {job.console}: the run's last line is missing (exit code {code}), as on a full disk"


def execute(job: Job, stop: Path) -> tuple[int, str]:
    """Run the process to its end: its exit code, and the last line that it printed."""
    words = job.command()
    with open(job.console, "ab", opener=no_link) as console:  # one process after another adds to it
        before = console.tell()
        process = warm.start(words, job.directory, console.fileno()) or subprocess.Popen(
            [*warm.python_m(), "rlkit.run", *words],
            cwd=job.directory,
            env=variables(),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,  # Ctrl-C in the terminal is for us, who then stop it with SIGTERM
        )
        try:
            while (code := ended(process, POLL)) is None and not stop.exists():
                pass
        finally:
            if process.poll() is None:
                process.terminate()
            if (code := ended(process, PATIENCE)) is None:
                process.kill()
                code = process.wait()
    return code, next(iter(reversed(tail(job.console, before))), "")


def variables() -> dict[str, str]:
    """The environment of a run."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def ended(process: subprocess.Popen[bytes] | warm.Forked, seconds: float) -> int | None:
    """The exit code of a process that ends within so many seconds."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def tail(path: Path, start: int = 0, size: int = 1 << 14) -> list[str]:
    """The last lines of a file that may still grow, of what follows its first `start` bytes."""
    if not path.is_file():
        return []
    with opened(path) as file:
        file.seek(max(start, path.stat().st_size - size))
        return [line.strip() for line in file.read(size).decode("utf-8", "replace").splitlines() if line.strip()]


def ask_to_stop(stop: Path) -> None:
    with suppress(OSError):  # a full or read-only disk: the runs cannot write either, and end by themselves
        stop.touch()


@contextmanager
def alone(out: Path, what: str = "comparison") -> Iterator[None]:
    """Keep a second comparison, or search, out of a folder."""
    with ExitStack() as stack:
        lock = prepare_folder(out) / ".lock"
        try:
            stack.enter_context(held(lock))
        except Timeout:
            raise UserError(f"another {what} is at work in {out}: wait until it ends, or choose another out=") from None
        note_lock(lock)
        stack.callback(forget_lock, lock)
        yield


def is_comparison(folder: Path) -> bool:
    """Whether a folder is a comparison's, not a run's."""
    runs = folder / "runs"
    return not os.path.isfile(folder / "config.yaml") and os.path.isdir(runs) and not runs.is_symlink()


def runs_of(comparison: Path) -> list[Path]:
    """The run folders of a comparison, links to folders among them."""
    with there(comparison / "runs"):
        return sorted(path for path in (comparison / "runs").iterdir() if path.is_dir())
