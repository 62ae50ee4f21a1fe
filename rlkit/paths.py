"""Paths as people write them."""

import os
from pathlib import Path


def home(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder in place of ~; one of a user who is not here stays as it is, as in a shell.

    Ask `os.path.isfile` and `os.path.isdir` of what a person wrote: pathlib's raise where a name is too long.
    """
    try:
        return Path(os.path.expanduser(path))
    except ValueError:  # a NUL, half a character: no user has such a name
        return Path(path)
