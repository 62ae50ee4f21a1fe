"""A function of the user's, text in and text out, in a process of its own: bounded in time, and in what comes back.

A thread that hangs cannot be ended, a process can. It is started at the first call, and again after it was ended.
"""

import json
import os
import signal
import sys
from collections.abc import Callable

from rlkit.child import Child, NoLine
from rlkit.errors import UserError, one_line
from rlkit.named import named

LONGEST = 1000  # characters of a result; the rest is cut off where it is made
STARTING = 60.0  # seconds that its module may take to be imported
CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from rlkit.worker import main; main(*sys.argv[2:])"


class Failed(Exception):
    """A call that gave no text: it raised, hung, or gave something else."""


class Worker:
    """Calls the function that a key names.

    Raises: UserError where there is no such function.
    """

    def __init__(self, key: str, name: str, seconds: float, words: str = "") -> None:
        """words: what else the key allows, for messages."""
        self.key, self.name, self.seconds, self.words = key, name, seconds, words
        self.child = self._started()  # what cannot be imported is said before anything is trained

    def __call__(self, text: str) -> str:
        """Its result, at most LONGEST characters. Raises: Failed."""
        if not self.child.running:
            self.child = self._started()
        try:
            return _text(self.child.ask(json.dumps(text), self.seconds))
        except NoLine as error:
            raise Failed(str(error)) from None

    def end(self) -> None:
        """End the process; the next call starts another."""
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
    """The process: a line with a text comes in, one with a text or an error goes out; first an empty text."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the function prints is not its result

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
    except BaseException as error:  # whatever its module raises
        tell(error=f"{type(error).__name__}: {one_line(error)}"[:LONGEST])
        return
    _alarm(0)
    tell(text="")
    for line in sys.stdin:
        _alarm(2 * float(seconds) + 1)
        answer = _answer(function, json.loads(line))
        if os.getpid() != own:  # the function forked, and this is not the process that was asked
            os._exit(0)
        _alarm(0)
        tell(**answer)


def _answer(function: Callable[[str], object], text: str) -> dict[str, str]:
    try:
        given = function(text)
    except Exception as error:  # whatever a function of the user's raises
        return {"error": f"it raised {type(error).__name__}: {one_line(error)}"[:LONGEST]}
    if not isinstance(given, str):
        return {"error": f"it gave a {type(given).__name__} in place of a text"}
    return {"text": given[:LONGEST].encode("utf-8", "replace").decode()}


def _alarm(seconds: float) -> None:
    """End this process then, where the system can: nobody else would after the parent was killed. 0: never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)
