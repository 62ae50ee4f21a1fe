"""A process of its own that is asked line by line: nothing inside of a process can end what hangs in it."""

import os
import queue
import signal
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

ENDED = ""  # no line of a process is empty: it ends with a line break


class NoLine(Exception):
    """The process said nothing in time, or has ended. It is ended in any case."""


class Child:
    """A process that is there until it is ended, or this object or program is gone.

    It leads a session of its own. So a signal to the group of this process, such as Ctrl-C, does not reach it: a run
    goes on to the end of its iteration. What it started itself ends with it.

    Raises: OSError where it cannot be started.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """variables: of its environment, in place of this process's own."""
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nowhere, encoding="utf-8", env=variables, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None, "they are pipes"
        self._questions, self._lines = self._process.stdin, queue.SimpleQueue[str]()
        self._owner = os.getpid()  # a forked process has the pipes of this one, and needs a child of its own
        self._end = weakref.finalize(self, _end, self._process, self._owner)
        threading.Thread(target=_listen, args=(self._process.stdout, self._lines), daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether it is there for this process."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, line: str, seconds: float) -> str:
        """The line that it answers within so many seconds by the clock. Raises: NoLine."""
        try:
            self._questions.write(line + "\n")
            self._questions.flush()
        except OSError:  # it has ended since
            self.end()
            raise NoLine("its process ended") from None
        return self.line(seconds)

    def line(self, seconds: float) -> str:
        """The next line that it says. Raises: NoLine."""
        try:
            said = self._lines.get(timeout=seconds)
        except queue.Empty:
            self.end()
            raise NoLine(f"nothing came within {seconds:g} seconds") from None
        if said == ENDED:
            self.end()
            raise NoLine("its process ended")
        return said.rstrip("\n")

    def end(self) -> None:
        self._end()


def _listen(pipe: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    """Hand on what a process says until it ends, and then that it has, so that nobody waits for it."""
    try:
        for line in pipe:
            lines.put(line)
    except ValueError:  # the pipe was closed, or what came is not text
        pass
    lines.put(ENDED)


def _end(process: "subprocess.Popen[str]", owner: int) -> None:
    if owner != os.getpid():
        return
    if process.returncode is None and hasattr(os, "killpg"):  # its number is not yet another's
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
