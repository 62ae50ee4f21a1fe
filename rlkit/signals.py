"""Signals that ask a process to leave, and handlers that are put back afterwards."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from mmap import mmap
from types import FrameType
from typing import Protocol

from rlkit.terminal import first_of_several, tell

# SIGHUP says that the connection to a terminal is lost. Clusters warn before they kill: Slurm with any signal that
# --signal names, mostly SIGUSR1, and Grid Engine with SIGUSR1 and SIGUSR2. Windows has SIGTERM only.
LEAVE = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def leaving() -> list[signal.Signals]:
    """The signals of `LEAVE` that this system has, without those that are ignored, as nohup has SIGHUP ignored."""
    there = [signal.Signals[name] for name in LEAVE if name in signal.Signals.__members__]
    return [number for number in there if signal.getsignal(number) is not signal.SIG_IGN]


Handler = Callable[[int, FrameType | None], object]


@contextmanager
def handled(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Handle signals meanwhile. They reach the main thread only: in another one nothing is done.

    Processes that are forked meanwhile let them pass until this one is done: it may need them for what is left to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here, over = os.getpid(), mmap(-1, 1)  # memory that forked processes share

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
            if handler is not None:  # None: one that was not set from Python and cannot be set from there
                signal.signal(number, handler)


def die(number: int) -> None:
    """Do what a signal does where nobody handles it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextmanager
def sheltered() -> Iterator[None]:
    """Let signals do what they did before, but not to the processes that are forked meanwhile; see `handled`."""
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
    """How long that may take where torchrun waits for it: then it kills the ranks."""
    if not os.environ.get("TORCHELASTIC_RUN_ID"):
        return ""
    return " (torchrun waits 30 seconds for both, or as long as its --shutdown-timeout says)"


class Stoppable(Protocol):
    """What looks now and then whether it was asked to stop."""

    interrupted: bool  # by Ctrl-C
    terminated: int  # the signal that asked to leave


@contextmanager
def interruptible(progress: Stoppable) -> Iterator[None]:
    """Ctrl-C lets the iteration finish, and a second one stops at once; SIGTERM asks for a checkpoint and no more.

    So do SIGHUP (a lost connection), SIGUSR1 and SIGUSR2 (a cluster's warnings), unless they are ignored.
    """

    def interrupt(*_: object) -> None:
        if first_of_several():
            tell(f"\nfinishing this iteration, then measuring{patience()}; Ctrl-C again stops at once")
        progress.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def terminate(number: int, _: object) -> None:
        progress.terminated = number

    with handled({signal.SIGINT: interrupt, **dict.fromkeys(leaving(), terminate)}):
        yield
