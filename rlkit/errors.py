"""What goes wrong for a reason that one line can tell."""

import os
from collections.abc import Callable


def one_line(value: object, show: Callable[[object], str] = str) -> str:
    """What an exception of the user's says, or what an object of theirs is, in one line.

    Their `__str__` and `__repr__` may raise themselves: then only the type is shown.
    """
    try:
        return " ".join(show(value).split())
    except Exception:  # whatever code of the user's raises
        what = f"a {type(value).__name__} that cannot be shown"
        return "a number of thousands of digits" if isinstance(value, int) else what


class UserError(Exception):
    """The user's mistake: one line that says what was given, what is allowed and what to do. Exit code 2."""


class Exhausted(UserError):
    """Nothing is left to learn from: a mistake at the start of a run, its natural end later on."""


class Unfinished(UserError):
    """What the run depends on failed in an iteration; the state before it is saved, and resume repeats it."""

    alarm: str  # the name under which the iteration is marked in metrics.jsonl
    repaired = False  # whether the user has to change code that the run names: resume needs trust=changed then


class RewardFailed(Unfinished):
    """A user's reward function raised, or returned something that is not a reward."""

    alarm, repaired = "reward_error", True


class EngineFailed(Unfinished):
    """A program that writes text for the policy is not there, or answers what it should not."""

    alarm = "engine_error"


class WorkerDied(RuntimeError):
    """A process that steps a copy of an environment has ended; the last checkpoint is kept. Exit code 1."""


class Diverged(RuntimeError):
    """A loss, a gradient or a rollout is not finite; the last good checkpoint is kept. Exit code 1."""


def whole_number(name: str, missing: int) -> int:
    """What a variable of the environment says; one that is empty is not there.

    Raises: UserError where it is not a whole number of at least 0.
    """
    said = os.environ.get(name, "").strip()
    if not said:
        return missing
    if not said.isdecimal():
        raise UserError(
            f"{name}={said[:20]} in the environment is not a whole number: unset it, or let torchrun set it"
        )
    return int(said)
