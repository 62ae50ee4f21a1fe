"""All output to the terminal goes through this module, which removes control characters.

A foreign file may hold characters that move the cursor, rename the window or reverse text. They are shown as �; files
keep them unchanged. tests/test_terminal.py checks that nothing is printed in another way.
"""

import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from rlkit.errors import UserError

# C0 except tab and line feed, DEL, C1; marks of text direction; line separators; surrogates.
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb]"
)
COLOR = re.compile(r"\x1b\[[\d;]*m")  # Gymnasium's color codes around its warnings
_format_warning = warnings.formatwarning
_muted: ContextVar[bool] = ContextVar("muted", default=False)
_outlives: ContextVar[bool] = ContextVar("outlives", default=False)
_only_prints: ContextVar[bool] = ContextVar("only_prints", default=False)


def harmless(text: str) -> str:
    """The text with � in place of each control character; tabs and line feeds stay."""
    return OBEYED.sub("\ufffd", text)


def say(text: str = "", end: str = "\n") -> None:
    """Print to standard output, unbuffered."""
    out = Out(sys.stdout, needed=_only_prints.get())
    out.write(harmless(text + end))
    out.flush()


def warn(line: str) -> None:
    """Print one line to standard error; line breaks in it are removed."""
    tell(" ".join(line.split("\n")))


def tell(text: str) -> None:
    """Print to standard error."""
    out = Out(sys.stderr)
    out.write(harmless(text + "\n"))
    out.flush()


def show_traceback() -> None:
    """Print the traceback of the exception that is being handled."""
    tell(traceback.format_exc().rstrip("\n"))


def harmless_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """The printed form of a Python warning: a library may repeat the content of a foreign file in it."""
    return harmless(COLOR.sub("", _format_warning(message, category, filename, lineno, line)))


@contextmanager
def muted(quiet: bool = True) -> Iterator[None]:
    """Suppress all output in the block."""
    before = _muted.set(quiet or _muted.get())
    try:
        yield
    finally:
        _muted.reset(before)


@contextmanager
def may_outlive_reader() -> Iterator[Callable[[], object]]:
    """A reader of the output that is gone ends a command, but not once the yielded function was called in the block.

    Ctrl-C reaches all of `rlkit run ... | tee log`: the run has then still to be saved and measured.
    """
    before = _outlives.set(False)
    try:
        yield lambda: _outlives.set(True)
    finally:
        _outlives.reset(before)


@contextmanager
def only_printing() -> Iterator[None]:
    """What `say` prints in the block is all that the command makes: a full disk behind > is an error there."""
    before = _only_prints.set(True)
    try:
        yield
    finally:
        _only_prints.reset(before)


class Out(io.TextIOBase):
    """Standard output or error; it may be closed, lack characters, or lead to a terminal that is gone."""

    def __init__(self, stream: TextIO | None, needed: bool = False) -> None:
        self.stream = stream  # a replacement, as in a notebook, may have only `write` and `flush`
        self.needed = needed

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a variable there
        try:
            return (self.stream and self.stream.encoding) or "utf-8"
        except AttributeError:
            return "utf-8"

    def isatty(self) -> bool:
        try:
            return self.stream is not None and self.stream.isatty()
        except (AttributeError, ValueError):
            return False

    def fileno(self) -> int:
        if self.stream is None:
            raise io.UnsupportedOperation("fileno")
        return self.stream.fileno()

    def write(self, text: str) -> int:
        shown = text.encode(self.encoding, "replace").decode(self.encoding)
        self._try(lambda stream: stream.write(shown))
        return len(text)

    def flush(self) -> None:
        self._try(lambda stream: stream.flush())

    def _try(self, use: Callable[[TextIO], object]) -> None:
        if self.stream is None or _muted.get():
            return
        try:
            use(self.stream)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and not _outlives.get():
                raise
            # The connection is lost, or the disk behind > is full. The run goes on without output.
            try:
                file = self.stream.fileno()
                os.dup2(os.open(os.devnull, os.O_WRONLY), file)
            except (AttributeError, OSError, ValueError):  # a replacement that leads to no file
                self.stream = None
            if self.needed:
                raise UserError(f"cannot print: {(error.strerror or str(error)).lower()}") from None
        except ValueError:  # it is closed
            self.stream = None


def first_of_several() -> bool:
    """Whether this process prints: it is alone, or the first of those that torchrun started."""
    return os.environ.get("RANK", "") in ("", "0")
