"""Threads that do not delay the end of the process: the server they wait for may answer hours later.

Python waits for threads of `concurrent.futures`, even after an error or Ctrl-C ended the run.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import TypeVar

Asked = TypeVar("Asked")
Found = TypeVar("Found")


def begun(work: Callable[[], Found], name: str) -> "Future[Found]":
    """Begin work in a thread. Returns: its future result."""
    done: Future[Found] = Future()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(found)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def each(function: Callable[[Asked], Found], items: Sequence[Asked], most: int, name: str) -> list[Found]:
    """The results of a function for all items, with at most `most` calls at the same time.

    The first error is raised at once: the other calls are not awaited, and no more calls begin.
    """
    left = deque(enumerate(items))

    def work() -> dict[int, Found]:
        found = {}
        while left:
            try:
                i, item = left.popleft()
            except IndexError:  # another thread took the last item
                break
            found[i] = function(item)
        return found

    workers = [begun(work, name) for _ in range(min(most, len(items)))]
    try:
        over, _ = wait(workers, return_when=FIRST_EXCEPTION)
    finally:
        left.clear()
    found = {i: x for done in over for i, x in done.result().items()}
    return [found[i] for i in range(len(items))]
