"""A copy in a process of its own whose errors reach the process that trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, SupportsFloat

import gymnasium

from rlkit import errors
from rlkit.control.workers import UNANSWERED
from rlkit.seeding import seed_global

KNOWN = ("builtins", errors.__name__)  # modules of the classes that every process has


def sendable(error: Exception) -> Exception:
    """The error itself if it is of a class that every process has and holds one text, else one that says the same.

    Gymnasium sends an error from a thread that drops what cannot be pickled; the receiver would wait forever. What
    the pipes themselves raise would look like the end of the process.
    """
    known = type(error).__module__ in KNOWN and not isinstance(error, UNANSWERED)
    if known and len(error.args) == 1 and isinstance(error.args[0], str):
        return error
    return RuntimeError(f"{type(error).__name__}: {errors.one_line(error)}")


@contextmanager
def sending() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (sent := sendable(error)) is error:
            raise
        raise sent from error


class Sendable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Raises only errors that another process can receive.

    The global generators of its process follow from the seed of each reset: a forked process begins with those of the
    process that trains, and so do all others.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            seed_global(seed, "reset")
        with sending():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        with sending():
            return self.env.step(action)
