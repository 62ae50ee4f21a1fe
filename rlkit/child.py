"""A child process that is asked line by line: code that hangs can only be ended from outside its process."""

import os
import queue
import signal
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

ENDED = ""  # marks the end of a process: its lines are never empty, as each has a line break


class NoLine(Exception):
    """The process gave no line in time, or has ended. It is ended in any case."""


class Child:
    """A process that runs until it is ended, or until this object or program is gone.

    It leads its own session, so a signal to the group of this process, such as Ctrl-C, does not reach it: a run
    can finish its iteration. Processes that it started end with it.

    Raises: OSError where it cannot be started.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """variables: environment variables that replace those of this process."""
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nowhere, encoding="utf-8", env=variables, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None, "they are pipes"
        self._questions, self._lines = self._process.stdin, queue.SimpleQueue[str]()
        self._owner = os.getpid()  # a forked process shares these pipes, and needs a child of its own
        self._end = weakref.finalize(self, _end, self._process, self._owner)
        threading.Thread(target=_listen, args=(self._process.stdout, self._lines), daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether the process runs and belongs to this process."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, line: str, seconds: float) -> str:
        """The answer to a line, within so many seconds. Raises: NoLine."""
        try:
            self._questions.write(line + "\n")
            self._questions.flush()
        except OSError:  # it has ended meanwhile
            self.end()
            raise NoLine("its process ended") from None
        return self.line(seconds)

    def line(self, seconds: float) -> str:
        """The next line of its output. Raises: NoLine."""
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
    """Pass on the lines of a process, and then its end, so that no reader waits forever."""
    try:
        for line in pipe:
            lines.put(line)
    except ValueError:  # the pipe was closed, or its bytes are not text
        pass
    lines.put(ENDED)


def _end(process: "subprocess.Popen[str]", owner: int) -> None:
    if owner != os.getpid():
        return
    if process.returncode is None and hasattr(os, "killpg"):  # its number still belongs to it
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
