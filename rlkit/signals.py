"""Signals that ask a process to leave, with handlers that are restored afterwards."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from mmap import mmap
from types import FrameType
from typing import Protocol

from rlkit.terminal import first_of_several, may_outlive_reader, tell

# SIGHUP says that the connection to a terminal is lost. Clusters warn before they kill: Slurm with any signal that
# --signal names, mostly SIGUSR1, and Grid Engine with SIGUSR1 and SIGUSR2. Windows has SIGTERM only.
LEAVE = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def leaving() -> list[signal.Signals]:
    """The signals of `LEAVE` on this system, except those that are ignored, such as SIGHUP under nohup."""
    there = [signal.Signals[name] for name in LEAVE if name in signal.Signals.__members__]
    return [number for number in there if signal.getsignal(number) is not signal.SIG_IGN]


Handler = Callable[[int, FrameType | None], object]


@contextmanager
def handled(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Handle signals during the block. They reach the main thread only: in other threads this has no effect.

    Processes forked during the block ignore them until it ends, as the block may need them for its last steps.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here, over = os.getpid(), mmap(-1, 1)  # memory shared with forked processes

    def guarded(handler: Handler) -> Handler:
        def act(number: int, frame: FrameType | None) -> None:
            if os.getpid() == here:
                handler(number, frame)
            elif over[0]:
                die(number)

        return act

    before = {number: signal.signal(number, guarded(handler)) for number, handler in handlers.items()}
    try:
        yield
    finally:
        over[0] = 1
        for number, handler in before.items():
            if handler is not None:  # None: a handler that was not set from Python cannot be restored
                signal.signal(number, handler)


def die(number: int) -> None:
    """Apply the default action of a signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextmanager
def sheltered() -> Iterator[None]:
    """Keep signals as they were, but not for processes forked during the block; see `handled`."""
    numbers = [signal.SIGINT, *leaving()]
    before = {number: signal.getsignal(number) for number in numbers}

    def act(number: int, frame: FrameType | None) -> None:
        earlier = before[signal.Signals(number)]
        if callable(earlier):
            earlier(number, frame)
        elif earlier is signal.SIG_DFL:
            die(number)

    with handled(dict.fromkeys(numbers, act)):
        yield


def patience() -> str:
    """The time limit for that under torchrun, which then kills the ranks."""
    if not os.environ.get("TORCHELASTIC_RUN_ID"):
        return ""
    return " (torchrun waits 30 seconds for both, or as long as its --shutdown-timeout says)"


class Stoppable(Protocol):
    """An object that checks regularly whether it was asked to stop."""

    interrupted: bool  # by Ctrl-C
    terminated: int  # the signal that asked to leave


@contextmanager
def interruptible(progress: Stoppable) -> Iterator[None]:
    """The first Ctrl-C lets the iteration finish, a second one stops at once; SIGTERM asks only for a checkpoint.

    So do SIGHUP (lost connection), SIGUSR1 and SIGUSR2 (warnings of a cluster), unless they are ignored.
    """

    def interrupt(*_: object) -> None:
        outlive()
        if first_of_several():
            tell(f"\nfinishing this iteration, then measuring{patience()}; Ctrl-C again stops at once")
        progress.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def terminate(number: int, _: object) -> None:
        outlive()
        progress.terminated = number

    with may_outlive_reader() as outlive, handled({signal.SIGINT: interrupt, **dict.fromkeys(leaving(), terminate)}):
        yield
