"""The processes of a vector environment that plays each copy in one of its own."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from multiprocessing.connection import wait
from threading import Thread
from typing import Any, NoReturn

from gymnasium.vector import AsyncVectorEnv, VectorEnv

from rlkit.disk import reason
from rlkit.errors import UserError, WorkerDied

GOING = 30.0  # seconds that a process may take to end on a busy machine
LOOK = 1.0  # seconds between two looks at whether the process that trains is still there
UNANSWERED = (EOFError, ConnectionError, KeyboardInterrupt)  # while answers of all copies are waited for


def give_up(vector: VectorEnv[Any, Any, Any], error: BaseException) -> NoReturn:
    """End the processes where one of them has ended, or where the second Ctrl-C came: one may never answer.

    Raises: WorkerDied; the error as it is where all of them are alive.
    """
    if isinstance(error, KeyboardInterrupt):
        end(vector)
        raise error
    raise_died(vector, error)


def raise_died(vector: VectorEnv[Any, Any, Any], error: BaseException) -> NoReturn:
    """Say which process of a vector environment has ended; raise the error as it is where none has."""
    inner = vector.unwrapped
    processes = inner.processes if isinstance(inner, AsyncVectorEnv) else []
    going = wait([process.sentinel for process in processes], GOING)
    for process in processes:
        if process.sentinel in going:  # its pipes are closed, and it may be a moment until it has an exit code
            process.join(GOING)
    dead = [(i, process.exitcode) for i, process in enumerate(processes) if process.exitcode is not None]
    if not dead:
        raise error
    end(vector)
    raise WorkerDied(
        f"the process of copy {dead[0][0]} of the environment has ended with exit code {dead[0][1]}"
    ) from error


def end(vector: VectorEnv[Any, Any, Any]) -> None:
    """Kill the processes: compiled code sees no gentler signal, and Python waits for them before it ends itself."""
    inner = vector.unwrapped
    if isinstance(inner, AsyncVectorEnv):
        for process in inner.processes:
            process.kill()
        inner.closed = True  # to close it would ask those that are gone


@contextmanager
def starting(what: str) -> Iterator[None]:
    """End the processes that were started here where one ends at once, or the system allows no more, or no more files.

    Raises: UserError that says so.
    """
    before = active_children()
    try:
        yield
    except (OSError, EOFError) as error:
        for process in active_children():
            if process not in before:
                process.kill()
                process.join()
        if isinstance(error, ConnectionError | EOFError):  # a process that runs the caller's script again, mostly
            raise UserError(
                f"{what}, and one ended as it began (the lines above say why): in a script, call rlkit below "
                'if __name__ == "__main__":'
            ) from error
        raise UserError(f"{what}, and the system allows fewer ({reason(error)}): give fewer rows") from error


def end_with_parent(trains: int) -> None:
    """In the process of a copy: end it when the process `trains` was killed, even if a step never returns.

    Compiled code that never lets other threads run keeps the process alive.
    """
    if os.getpid() == trains:  # the copy that only tells its spaces
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
