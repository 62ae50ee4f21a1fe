"""A command in a terminal of its own, which can be read, and closed as a lost connection closes it."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """A process whose standard streams are a terminal of so many columns."""

    def __init__(self, words: list[str], columns: int, folder: Path) -> None:
        import fcntl
        import pty
        import termios

        self.handle, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {key: x for key, x in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.said = ""

    def read(self) -> bool:
        """Read what was printed since; False at the end."""
        try:
            found = os.read(self.handle, 1 << 16)
        except OSError:  # the other side is closed
            found = b""
        self.said += found.decode("utf-8", "replace")
        return bool(found)

    def until(self, text: str) -> None:
        """Wait until a text was printed."""
        while text not in self.said:
            assert self.read(), f"it ended before {text!r}: {self.said}"

    def end(self) -> int:
        """Wait for the end: the exit code."""
        while self.read():
            pass
        return self.process.wait()

    def close(self) -> None:
        """Close the terminal, as a lost connection does."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


@contextmanager
def terminal(*words: str, columns: int = 80, folder: Path = ROOT) -> Iterator[Terminal]:
    """Run `python WORDS` in a terminal."""
    opened = Terminal(list(words), columns, folder)
    try:
        yield opened
    finally:
        opened.close()
        if opened.process.poll() is None:
            opened.process.kill()
        opened.process.wait()
