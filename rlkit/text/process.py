"""A process of its own for what may hang or take all memory: asked line by line, and started again where it ended.

Nothing inside of a process can stop all that runs in it, so its limits are kept from outside, too.
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
    _child: Child | None = field(default=None, init=False, repr=False)

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._child is not None and self._child.running

    def ask(self, question: object, seconds: float) -> object:
        """The answer, for which there are so many seconds of a processor.

        Raises: Failed where there is none; UserError where the process cannot be started.
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
        """End the process; the next question starts another."""
        if self._child is not None:
            self._child.end()

    def _started(self) -> Child:
        command = [sys.executable, "-P", str(CHILD), json.dumps(sys.path), str(self.file)]
        try:
            with tempfile.TemporaryDirectory(prefix="rlkit-", ignore_cleanup_errors=True) as folder:
                # Its home while it starts: a package may write a cache there, as matplotlib does.
                child = Child(command, {**os.environ, "HOME": folder, "MPLCONFIGDIR": folder, **self.variables})
                child.line(START)
                return child
        except OSError as error:
            raise UserError(f"{self.asked}: no process can be started ({error.strerror}): end others first") from None
        except NoLine:
            raise UserError(f"{self.asked}: {self.package} does not start; install it again: {self.install}") from None
