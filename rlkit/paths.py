"""Paths as users write them."""

import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from rlkit.errors import UserError


def home(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder in place of ~; for an unknown user it stays unchanged, as in a shell.

    Check a user's paths with `os.path.isfile` and `os.path.isdir`: pathlib's raise where a name is too long.
    """
    try:
        return Path(os.path.expanduser(path))
    except ValueError:  # no user has such a name: it has a NUL or half a character
        return Path(path)


def start() -> Path:
    """The directory at which relative paths start; user code may change the current directory later."""
    try:
        return Path.cwd()
    except OSError:  # the directory was removed: relative paths lead nowhere
        return Path()


@contextmanager
def back(here: Path) -> Iterator[None]:
    """Return to a directory within the block, wherever user code has gone."""
    if start() == here:
        yield
        return
    with chdir(here):
        yield


@contextmanager
def as_written(held: Path, called: Path) -> Iterator[None]:
    """Make errors show an absolute path as it was written."""
    try:
        yield
    except UserError as error:
        error.args = (str(error).replace(str(held), str(called)),)
        raise
