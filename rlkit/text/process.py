"""A separate process for code that may hang or exhaust memory: it answers line by line and is restarted if it ends.

No process can limit everything that runs in it, so some limits are enforced from outside.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rlkit.child import Child, NoLine
from rlkit.errors import UserError

START = 120.0  # seconds of wall-clock time for the start of the process
LATER = 7.0  # seconds of wall-clock time for an answer, beyond its limit of processor time
CHILD = Path(__file__).with_name("process_child.py")


class Failed(Exception):
    """There is no answer: the question raised an exception, hung, or ended the process."""


@dataclass
class Process:
    """Asks `answer(question)` of a file that imports nothing of the project; questions and answers are JSON."""

    file: Path
    asked: str  # the feature that needs the process, for messages
    package: str  # the package that it imports
    install: str
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables
    _child: Child | None = field(default=None, init=False, repr=False)

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._child is not None and self._child.running

    def ask(self, question: object, seconds: float) -> object:
        """The answer, within so many seconds of processor time.

        Raises: Failed where there is no answer; UserError where the process cannot be started.
        """
        if self._child is None or not self._child.running:
            self._child = self._started()
        try:
            reply = json.loads(self._child.ask(json.dumps([seconds, question]), seconds + LATER))
        except NoLine as error:
            raise Failed(str(error)) from None
        if "failed" in reply:
            raise Failed(reply["failed"])
        given: object = reply["gave"]
        return given

    def close(self) -> None:
        """End the process; the next question starts a new one."""
        if self._child is not None:
            self._child.end()

    def _started(self) -> Child:
        command = [sys.executable, "-P", str(CHILD), json.dumps(sys.path), str(self.file)]
        try:
            with tempfile.TemporaryDirectory(prefix="rlkit-", ignore_cleanup_errors=True) as folder:
                # The start gets the real home: a package may write a cache there, as matplotlib does.
                child = Child(command, {**os.environ, "HOME": folder, "MPLCONFIGDIR": folder, **self.variables})
                child.line(START)
                return child
        except OSError as error:
            raise UserError(f"{self.asked}: no process can be started ({error.strerror}): end others first") from None
        except NoLine:
            raise UserError(f"{self.asked}: {self.package} does not start; install it again: {self.install}") from None
