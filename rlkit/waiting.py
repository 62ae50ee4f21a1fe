"""How far a wait has come: what takes long reports it, and a command may show a bar."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Show = Callable[[int, int], object]
_SHOW: ContextVar[Show | None] = ContextVar("show", default=None)


def advance(done: int, total: int) -> None:
    """Report that so many of all episodes, answers or weights are done. Without `shown_by` nothing happens."""
    if (show := _SHOW.get()) is not None:
        show(done, total)


def counted(items: Collection[T]) -> Iterator[T]:
    """The items one by one, reporting how many are done."""
    for done, item in enumerate(items):
        advance(done, len(items))
        yield item
    advance(len(items), len(items))


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Inside this context, `show` gets what `advance` reports."""
    before = _SHOW.set(show)
    try:
        yield
    finally:
        _SHOW.reset(before)


class Left(BaseException):  # no `except Exception` of a reward on the way catches it
    """A wait was left before its end."""


@contextmanager
def unless(asked: Callable[[], object]) -> Iterator[None]:
    """Leave the block at the next report of `advance` once `asked` says so."""
    before = _SHOW.get()

    def show(done: int, total: int) -> None:
        if asked():
            raise Left
        if before is not None:
            before(done, total)

    with suppress(Left), shown_by(show):
        yield
