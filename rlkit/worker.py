"""Runs a user's function from text to text in a separate process, with limits of time and of the result's length.

A thread that hangs cannot be ended, but a process can. It starts at the first call, and restarts after it was ended.
"""

import json
import os
import signal
import sys
from collections.abc import Callable

from rlkit.child import Child, NoLine
from rlkit.errors import UserError, one_line
from rlkit.named import named

LONGEST = 1000  # most characters of a result; the child cuts off the rest
STARTING = 60.0  # seconds allowed for the import of its module
CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from rlkit.worker import main; main(*sys.argv[2:])"


class Failed(Exception):
    """A call without a text as its result: the function raised, hung, or returned something else."""


class Worker:
    """Calls the function that a key names.

    Raises: UserError where there is no such function.
    """

    def __init__(self, key: str, name: str, seconds: float, words: str = "") -> None:
        """words: other values that the key allows, for messages."""
        self.key, self.name, self.seconds, self.words = key, name, seconds, words
        self.child = self._started()  # import errors are reported before training

    def __call__(self, text: str) -> str:
        """The result of the function, at most LONGEST characters. Raises: Failed."""
        if not self.child.running:
            self.child = self._started()
        try:
            return _text(self.child.ask(json.dumps(text), self.seconds))
        except NoLine as error:
            raise Failed(str(error)) from None

    def end(self) -> None:
        """End the process; the next call starts a new one."""
        self.child.end()

    def _started(self) -> Child:
        given = [self.key, self.name, str(self.seconds), self.words]
        try:
            child = Child([sys.executable, "-P", "-s", "-c", CHILD, json.dumps(sys.path), *given])
        except OSError as error:
            raise UserError(f"{self.key}: no process can be started ({error.strerror}): end others first") from None
        try:
            refused = _text(child.line(STARTING))
        except (Failed, NoLine) as error:
            child.end()
            raise UserError(f"{self.key}={self.name!r} cannot be imported: {error}; fix it") from None
        if refused:
            child.end()
            raise UserError(refused)
        return child


def _text(line: str) -> str:
    answer = json.loads(line)
    if "error" in answer:
        raise Failed(answer["error"])
    text: str = answer["text"]
    return text


def main(key: str, name: str, seconds: str, words: str) -> None:
    """The child process: reads lines with a text, writes a text or an error for each; first an empty text."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output that the function prints is not its result

    def tell(**answer: str) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    own = os.getpid()
    _alarm(2 * STARTING)
    try:
        function = named(key, name, words)
    except UserError as error:
        tell(text=str(error))
        return
    except BaseException as error:  # its module may raise anything
        tell(error=f"{type(error).__name__}: {one_line(error)}"[:LONGEST])
        return
    _alarm(0)
    tell(text="")
    for line in sys.stdin:
        _alarm(2 * float(seconds) + 1)
        answer = _answer(function, json.loads(line))
        if os.getpid() != own:  # the function forked, and this is the forked process
            os._exit(0)
        _alarm(0)
        tell(**answer)


def _answer(function: Callable[[str], object], text: str) -> dict[str, str]:
    try:
        given = function(text)
    except Exception as error:  # a user's function may raise anything
        return {"error": f"it raised {type(error).__name__}: {one_line(error)}"[:LONGEST]}
    if not isinstance(given, str):
        return {"error": f"it gave a {type(given).__name__} in place of a text"}
    return {"text": given[:LONGEST].encode("utf-8", "replace").decode()}


def _alarm(seconds: float) -> None:
    """End this process after so many seconds, if supported: a killed parent could not. 0: never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
