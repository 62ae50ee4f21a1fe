"""Compares answers as mathematics with the package math-verify, in a separate process with limits of time and memory.

A completion may contain 9^{9^{9^9}}: an answer that exceeds the limits counts as wrong.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from rlkit.errors import UserError
from rlkit.text.process import Failed, Process

LONGEST = 1000  # most characters of an answer; longer ones count as none
SECONDS = 3.0  # seconds of processor time for one comparison
INSTALL = "pip install -c constraints.txt -e '.[math]'"
CHILD = Path(__file__).with_name("symbolic_process.py")


class Verifier:
    """Whether pairs of a reference answer and a given answer are equal; its process starts at the first call."""

    def __init__(self) -> None:
        self._process = Process(CHILD, "env.reward=math", "math-verify", INSTALL)
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, pairs: Iterable[tuple[str, str | None]]) -> list[bool]:
        """For each (reference, given) whether they are equal; None and texts that are too long are equal to nothing."""
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
            if not self._process.running:
                check_installed()
            self._known[key] = self._ask(key)
        return self._known[key]

    def _ask(self, pair: tuple[str, str]) -> bool:
        try:
            return self._process.ask(pair, SECONDS) is True
        except Failed:
            return False

    def close(self) -> None:
        """End the process; the next question starts a new one."""
        self._process.close()


def check_installed() -> None:
    """Raises: UserError with the command to install math-verify where it is missing."""
    if importlib.util.find_spec("math_verify") is None:
        raise UserError(f"env.reward=math needs the package math-verify: {INSTALL}; or give env.reward=boxed")


def balanced(text: str) -> bool:
    """Whether the brackets of a text are balanced, so that it can be put into a box."""
    depth = 0
    for letter in text.replace("\\{", "").replace("\\}", ""):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth < 0:
            return False
    return depth == 0
