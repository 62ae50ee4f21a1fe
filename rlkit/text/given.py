"""Calls of user-provided functions: failures and wrong results become one line each."""

import difflib
import inspect
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from rlkit.errors import RewardFailed, UserError, one_line, place_of

ASYNC = "is asynchronous: write def in place of async def"
SHOWN = 80  # characters of a value that a message shows
LETTERS = (str, bytes, bytearray, memoryview)  # Python accepts these as lists or numbers, which is never intended


def name_of(function: object) -> str:
    """The name of a function; an object has that of its class, as its text holds an address, another each time."""
    if isinstance(function, partial):
        return name_of(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def called(what: str, function: Callable[..., object], /, *given: object, **columns: object) -> object:
    """The result of the function. Raises: RewardFailed with the exception and its line."""
    try:
        found = function(*given, **columns)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # code of the user's may raise anything: SystemExit, CancelledError
        words = f"{type(error).__name__}: {one_line(error) or 'nothing more'}"
        raise RewardFailed(f"{what} raised {words}{place_of(error, anywhere=True)}{meant(error, columns)}") from error
    if inspect.iscoroutine(found):
        found.close()
        raise RewardFailed(f"{what} {ASYNC}")
    return found


def meant(error: BaseException, columns: Collection[str]) -> str:
    """Advice on a column that is not there and has the name of one, but for a few letters; otherwise empty."""
    name = error.args[0] if isinstance(error, KeyError) and error.args else ""
    if not isinstance(name, str) or name in columns:
        return ""
    return "".join(f": did you mean the column {near}?" for near in alike(name, columns))


def alike(name: str, columns: Collection[str]) -> list[str]:
    """The column that has this name but for a few letters, if there is one; `question` is not `solution`."""
    return difflib.get_close_matches(name, columns, 1, 0.75)


def refuse_async(what: str, function: object) -> None:
    """Raises: RewardFailed for a function whose calls nobody awaits, before it is called."""
    if inspect.iscoroutinefunction(function):
        raise RewardFailed(f"{what} {ASYNC}")


def listed(what: str, given: Any, values: str, count: int, asked: str) -> list[object]:  # Any: whatever it returned
    """A list with one value for each item; an array or a tensor is accepted. Raises: RewardFailed."""
    is_list = isinstance(given, Sequence) and not isinstance(given, LETTERS)
    if not is_list and not (isinstance(given, np.ndarray | torch.Tensor) and given.ndim):
        found = f"a {type(given).__name__}"
    else:
        every = called(what, list, given)  # it may be a class of the user's
        assert isinstance(every, list)
        if len(every) == count:
            return every
        found = f"{len(every)} {values}"
    raise RewardFailed(f"{what} gave {found} for {count} {asked}; return a list with one for each")


def shown(value: object) -> str:
    """A value as messages show it."""
    text = one_line(value, repr)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
