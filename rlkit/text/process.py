"""A process of its own for what may hang or take all memory: asked line by line, and started again where it ended.

Nothing inside of a process can stop all that runs in it, so its limits are kept from outside, too.
"""

import atexit
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rlkit.errors import UserError

ENDED = ""  # no process says an empty line
START = 120.0  # seconds by the clock until the process has begun
LATER = 7.0  # seconds by the clock beyond those of a processor that an answer may take
CHILD = Path(__file__).with_name("process_child.py")


class Failed(Exception):
    """There is no answer: what was asked raised, hung, or ended its process."""


@dataclass
class Process:
    """Asks `answer(question)` of a file that imports nothing of the project; questions and answers are JSON."""

    file: Path
    asked: str  # what needs it, for messages
    package: str  # what it imports
    install: str
    variables: Mapping[str, str] = field(default_factory=dict)  # of its environment

    def __post_init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._owner = os.getpid()  # a forked process has the pipes of this one, and needs its own
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._child is not None and self._owner == os.getpid() and self._child.poll() is None

    def ask(self, question: object, seconds: float) -> object:
        """The answer, for which there are so many seconds of a processor.

        Raises: Failed where there is none; UserError where the process cannot be started.
        """
        child = self._started()
        with suppress(queue.Empty, OSError):
            assert child.stdin is not None, "it is a pipe"
            child.stdin.write(json.dumps([seconds, question]) + "\n")
            child.stdin.flush()
            if answer := self._answers.get(timeout=seconds + LATER):
                reply = json.loads(answer)
                if "failed" in reply:
                    raise Failed(reply["failed"])
                given: object = reply["gave"]
                return given
        self.close()
        raise Failed("it took too long, or ended its process")

    def _started(self) -> "subprocess.Popen[str]":
        if self._child is not None and self.running:
            return self._child
        try:
            with tempfile.TemporaryDirectory(prefix="rlkit-", ignore_cleanup_errors=True) as folder:
                # Its home while it starts: a package may write a cache there, as matplotlib does.
                child = self._start({**os.environ, "HOME": folder, "MPLCONFIGDIR": folder, **self.variables})
                with suppress(queue.Empty):
                    if self._answers.get(timeout=START) == "ready":
                        return child
        except OSError as error:
            raise UserError(f"{self.asked}: no process can be started ({error.strerror}): end others first") from None
        self.close()
        raise UserError(f"{self.asked}: {self.package} does not start; install it again: {self.install}")

    def _start(self, variables: Mapping[str, str]) -> "subprocess.Popen[str]":
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        command = [sys.executable, "-P", str(CHILD), json.dumps(sys.path), str(self.file)]
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True, env=variables)
        assert child.stdout is not None, "it is a pipe"
        self._child, self._answers, self._owner = child, queue.SimpleQueue(), os.getpid()
        threading.Thread(target=_listen, args=(child.stdout, self._answers), daemon=True).start()
        atexit.register(self.close)
        return child

    def close(self) -> None:
        """End the process; the next question starts another."""
        atexit.unregister(self.close)
        child, self._child = self._child, None
        if child is not None and self._owner == os.getpid():
            child.kill()
            child.wait()


def _listen(pipe: IO[str], answers: "queue.SimpleQueue[str]") -> None:
    """Hand on what a process says, until it ends; then that it has ended, so that nobody waits for it."""
    with suppress(ValueError):  # the pipe was closed
        for line in pipe:
            answers.put(line.strip())
    answers.put(ENDED)
