"""Errors that are reported in one line."""

import os
import re
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory", re.IGNORECASE)  # as torch's allocators report it


def one_line(value: object, show: Callable[[object], str] = str) -> str:
    """A user's exception or object as one line of text.

    Its `__str__` or `__repr__` may raise: then only the type is shown.
    """
    try:
        return " ".join(show(value).split())
    except Exception:  # code of the user's may raise anything
        what = f"a {type(value).__name__} that cannot be shown"
        return "a number of thousands of digits" if isinstance(value, int) else what


def place_of(error: BaseException, anywhere: bool = False) -> str:
    """Where the user's code raised an exception, as ` (mine.py, line 5)`: the last line that is theirs.

    anywhere: where none of it is in a file of theirs, the last line of all; otherwise empty.
    """
    folders = *map(sysconfig.get_path, ("stdlib", "platstdlib")), str(Path(__file__).parent)
    others = "<frozen", *(f"{folder}{os.sep}" for folder in folders)
    installed = {"site-packages", "dist-packages"}
    frames = list(traceback.extract_tb(error.__traceback__))
    theirs = [x for x in frames if not x.filename.startswith(others) and installed.isdisjoint(Path(x.filename).parts)]
    last = (theirs or frames * anywhere)[-1:]
    return "".join(f" ({Path(each.filename).name}, line {each.lineno})" for each in last)


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that the memory is full."""
    return isinstance(error, MemoryError) or bool(OUT_OF_MEMORY.search(one_line(error)))


class UserError(Exception):
    """A mistake of the user, in one line: what was given, what is allowed, and what to do. Exit code 2."""


class Exhausted(UserError):
    """No data are left to learn from: a mistake at the start of a run, and the normal end later on."""


class Unfinished(UserError):
    """Something that the run depends on failed in an iteration; the state before it is saved, and resume repeats it."""

    alarm: str  # the name that marks the iteration in metrics.jsonl
    repaired = False  # whether the user must change code that the run names: resume then needs trust=changed


class RewardFailed(Unfinished):
    """A user's reward function raised, or returned something that is not a reward."""

    alarm, repaired = "reward_error", True


class EngineFailed(Unfinished):
    """A program that writes text for the policy is unreachable, or gives invalid answers."""

    alarm = "engine_error"


class WorkerDied(RuntimeError):
    """A process that steps a copy of an environment has ended; the last checkpoint is kept. Exit code 1."""


class Diverged(RuntimeError):
    """A loss, a gradient or a rollout is not finite; the last good checkpoint is kept. Exit code 1."""


def whole_number(name: str, missing: int) -> int:
    """The number in an environment variable; `missing` where it is unset or empty.

    Raises: UserError where it is not an integer of at least 0.
    """
    said = os.environ.get(name, "").strip()
    if not said:
        return missing
    if not said.isdecimal():
        raise UserError(
            f"{name}={said[:20]} in the environment is not a whole number: unset it, or let torchrun set it"
        )
    return int(said)
