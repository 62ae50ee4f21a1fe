"""Paths as users write them."""

import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from rlkit.errors import UserError


def home(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder in place of ~; one of a user who is not here stays as it is, as in a shell.

    Ask `os.path.isfile` and `os.path.isdir` of what a person wrote: pathlib's raise where a name is too long.
    """
    try:
        return Path(os.path.expanduser(path))
    except ValueError:  # a NUL, half a character: no user has such a name
        return Path(path)


def start() -> Path:
    """The directory that relative paths start from; code of the user's may change it later."""
    try:
        return Path.cwd()
    except OSError:  # it was removed: relative paths lead nowhere
        return Path()


@contextmanager
def back(here: Path) -> Iterator[None]:
    """Stand in a directory meanwhile, where code of the user's has left it."""
    if start() == here:
        yield
        return
    with chdir(here):
        yield


@contextmanager
def as_written(held: Path, called: Path) -> Iterator[None]:
    """Let mistakes name an absolute path as it was written."""
    try:
        yield
    except UserError as error:
        error.args = (str(error).replace(str(held), str(called)),)
        raise
