"""Loads code outside rlkit that a key names: ./mine.py:NAME, or package.module:NAME."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rlkit import outside
from rlkit.errors import UserError
from rlkit.paths import home

Load = Callable[[Path], ModuleType]


def named(
    key: str, name: str, words: str = "", load: Load = outside.load_file
) -> Callable[..., Any]:  # Any: it is theirs
    """The function or class that a key names.

    words: what else the key allows, for the message; load: imports a .py file.

    Raises: UserError where there is no such thing.
    """
    place, colon, last = name.rpartition(":")
    if not colon or not place or not last:
        raise UserError(f"{key}={name!r} names no code; allowed are {words}PATH.py:NAME or PACKAGE.MODULE:NAME")
    found: object = getattr(_module(place, key, name, load), last, None)
    if not callable(found):
        raise UserError(f"{key}={name!r}: {place} has no function or class {last!r}; define it there")
    return found


def _module(place: str, key: str, name: str, load: Load) -> ModuleType:
    if place.endswith(".py"):
        path = Path(os.path.abspath(home(place)))
        if not os.path.isfile(path):  # False for what cannot be a path, such as a very long text
            raise UserError(f"{key}={name!r}: there is no file {path}; give the path of a .py file that exists")
        return load(path.resolve())
    try:
        if not all(part.isidentifier() for part in place.split(".")):
            raise ModuleNotFoundError(f"No module named '{place}'")  # such as a path
        return outside.import_module(place)
    except ModuleNotFoundError as error:
        raise UserError(f"{key}={name!r}: {error}; give a .py file or a module that can be imported") from None
