"""Compares answers as mathematics, by the package math-verify in a process of its own, bounded in time and memory.

A text of a policy may be 9^{9^{9^9}}: what would take longer or more than is allowed is no right answer.
"""

import atexit
import importlib.util
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from rlkit.errors import UserError

LONGEST = 1000  # characters of an answer; what is longer is none
PATIENCE, START = 10.0, 120.0  # seconds by the clock for one comparison, and until the process has begun
INSTALL = "pip install -c constraints.txt -e '.[math]'"
CHILD = Path(__file__).with_name("symbolic_process.py")


class Verifier:
    """Whether pairs of a right answer and a given one are equal; its process starts when it is first asked."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, pairs: Iterable[tuple[str, str | None]]) -> list[bool]:
        """For each (right, given); None and what is too long are equal to nothing."""
        return [given is not None and self._same(right, given) for right, given in pairs]

    def _same(self, right: str, given: str) -> bool:
        if right == given:
            return True
        if len(given) > LONGEST or not balanced(given):
            return False
        key = right, given
        if key not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[key] = self._ask(key)
        return self._known[key]

    def _ask(self, pair: tuple[str, str]) -> bool:
        child = self._started()
        try:
            assert child.stdin is not None, "it is a pipe"
            child.stdin.write(json.dumps(pair) + "\n")
            child.stdin.flush()
            return self._answers.get(timeout=PATIENCE) == "true"
        except (queue.Empty, OSError):
            self.close()
            return False

    def _started(self) -> subprocess.Popen[str]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        check_installed()
        command = [sys.executable, "-P", str(CHILD), json.dumps(sys.path)]
        try:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError as error:
            raise UserError(
                f"env.reward=math: no process can be started ({error.strerror}): end others first"
            ) from None
        assert self._child.stdout is not None, "it is a pipe"
        self._answers = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(self._child.stdout, self._answers), daemon=True).start()
        atexit.register(self.close)
        with suppress(queue.Empty):
            if self._answers.get(timeout=START) == "ready":
                return self._child
        self.close()
        raise UserError(f"env.reward=math: math-verify does not start; install it again: {INSTALL}")

    def close(self) -> None:
        """End the process; the next question starts another."""
        atexit.unregister(self.close)
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()


def _listen(pipe: IO[str], answers: "queue.SimpleQueue[str]") -> None:
    """Hand on what a process says, until it ends; then that it has ended, so that nobody waits for it."""
    with suppress(ValueError):  # the pipe was closed
        for line in pipe:
            answers.put(line.strip())
    answers.put("ended")


def check_installed() -> None:
    """Raises: UserError that names the command where math-verify is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise UserError(f"env.reward=math needs the package math-verify: {INSTALL}; or give env.reward=boxed")


def balanced(text: str) -> bool:
    """Whether every brace of a text has its partner, so that it can stand in a box."""
    depth = 0
    for letter in text.replace("\\{", "").replace("\\}", ""):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth < 0:
            return False
    return depth == 0
