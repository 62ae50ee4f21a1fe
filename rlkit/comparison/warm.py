"""A process that has imported what a run needs, and starts runs by fork: they begin without their imports.

These imports take 2 to 3 seconds of each run. A fork copies a process as it is, so it has a single thread, has drawn
nothing at random, and has seen neither a plug-in nor a GPU. Linux alone starts runs in this way; elsewhere, and where
the process cannot be used, each run is a new process of Python.
"""

import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rlkit.console import loading
from rlkit.installed import present

IMPORTED = ("rlkit.session", "rlkit.control")  # what most runs import, with torch and gymnasium
LONGEST = 1 << 16  # bytes of a command line


class Forked:
    """A run that another process forked, with the methods of `subprocess.Popen` that a comparison needs."""

    def __init__(self, status: int) -> None:
        """status: the end of a pipe on which its process id and, at its end, its exit code arrive as lines.

        Raises: OSError where the process that forks is gone.
        """
        self._status = os.fdopen(status, "rb", buffering=0)
        self._ended = select.poll()
        self._code: int | None = None
        if not (line := self._status.readline()):
            self._status.close()
            raise OSError("no process forks")
        self.pid = int(line)
        self._ended.register(self._status, select.POLLIN | select.POLLHUP)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; that of SIGKILL where nobody can tell. Raises: subprocess.TimeoutExpired."""
        if self._code is None:
            if not self._ended.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired("rlkit.run", timeout or 0)
            self._code = int(self._status.readline() or -signal.SIGKILL)
            self._status.close()
        return self._code

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def python_m() -> list[str]:
    """The command `python -m`, which has the current folder on its path only where this process has it, too."""
    return [sys.executable, *([] if imports_from(os.getcwd()) else ["-P"]), "-m"]


def imports_from(folder: str) -> bool:
    """Whether this process imports from a folder.

    A program elsewhere, and one that was started with -P, does not: it may be a stranger's folder.
    """
    return os.path.realpath(folder) in map(os.path.realpath, sys.path)


class Warm:
    """The process that forks, seen from the one that asks. Several threads may ask; the first starts it."""

    def __init__(self, variables: dict[str, str]) -> None:
        """variables: the environment of each run."""
        self.variables = variables
        self.process: subprocess.Popen[bytes] | None = None
        self.began = ""  # which rlkit the process has imported
        self._one_at_a_time = threading.Lock()

    def start(self, words: Sequence[str], directory: Path, console: int) -> Forked:
        """A run that writes to the file `console`.

        Raises: OSError where it cannot be started, also where files of rlkit were edited since the process imported
        them: the run would name the files as they are now, and run them as they were.
        """
        message = json.dumps([str(directory), *words]).encode()
        if len(message) > LONGEST:
            raise OSError("the command line is too long to be sent")
        with self._one_at_a_time:
            self.began = self.began or present()
            if self.process is None:
                self.process, self._asks = self._started()
            if present() != self.began:
                raise OSError("files of rlkit were edited")
            mine, its = os.pipe()
            try:
                socket.send_fds(self._asks, [message], [console, its])
            except OSError:
                os.close(mine)
                raise
            finally:
                os.close(its)
        return Forked(mine)

    def _started(self) -> tuple["subprocess.Popen[bytes]", socket.socket]:
        asks, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = subprocess.Popen(
                [*python_m(), "rlkit.comparison.warm", str(its.fileno())],
                env=self.variables,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for us
            )
        return process, asks

    def end(self) -> None:
        """End the process, as soon as the runs that it forked have ended."""
        if self.process is not None:
            self._asks.close()
            threading.Thread(target=self.process.wait, daemon=True).start()


_kept: list[Warm] = []  # at most one


@contextmanager
def kept(variables: dict[str, str]) -> Iterator[None]:
    """Fork what is started meanwhile, where this system can. variables: the environment of each run."""
    if sys.platform != "linux" or _kept:
        yield
        return
    _kept.append(warm := Warm(variables))
    try:
        yield
    finally:
        _kept.clear()
        warm.end()


def start(words: Sequence[str], directory: Path, console: int) -> Forked | None:
    """Fork a run; None where no process for it is kept, or where that cannot fork."""
    for warm in _kept:
        with suppress(OSError):
            return warm.start(words, directory, console)
    return None


def serve(asks: socket.socket) -> list[str] | None:
    """Fork a run for each message. Returns: in a run, its words; here, none after the last run ended."""
    runs: dict[int, int] = {}  # process id: the pipe for its exit code
    woken, wake = os.pipe()
    for number in (woken, wake):
        os.set_blocking(number, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    listening = True  # to a process that may ask for runs
    while listening or runs:
        ready = select.select([asks.fileno(), woken] if listening else [woken], [], [])[0]
        if woken in ready:
            os.read(woken, LONGEST)
            reap(runs)
        if asks.fileno() not in ready:
            continue
        message, given, *_ = socket.recv_fds(asks, LONGEST, 2)
        if not message:
            listening = False
            continue
        console, status = given
        try:
            run = os.fork()
        except OSError:  # no room for one more: the closed pipe says so
            os.close(console)
            os.close(status)
            continue
        if not run:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (woken, wake, status, *runs.values()):
                os.close(number)
            asks.close()
            return become(*json.loads(message), console=console)
        runs[run] = status
        os.close(console)
        tell(status, run)
    return None


def tell(status: int, number: int) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(status, b"%d\n" % number)


def reap(runs: dict[int, int]) -> None:
    """Tell the exit codes of the runs that have ended."""
    for run, status in list(runs.items()):
        ended, code = os.waitpid(run, os.WNOHANG)
        if ended:
            tell(status, os.waitstatus_to_exitcode(code))
            os.close(runs.pop(run))


def become(directory: str, *words: str, console: int) -> list[str]:
    """Make this process what `python -m rlkit.run WORDS` is in that directory. Returns: the words."""
    import numpy as np
    import torch
    from numpy.random import MT19937

    os.setsid()
    for number in (1, 2):
        os.dup2(console, number)
    os.close(console)
    os.chdir(directory)
    if not sys.flags.safe_path:
        sys.path[0] = directory
    # An environment that uses a global generator does not repeat what another run drew.
    np.random.set_state(dict(MT19937().state))
    torch.default_generator.seed()
    return list(words)


def main(number: str) -> None:
    with loading():
        for name in IMPORTED:
            importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("a fork would have one thread alone")
    words = serve(socket.socket(fileno=int(number)))
    if words is not None:
        sys.argv[1:] = words
        runpy.run_module("rlkit.run", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
