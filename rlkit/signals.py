"""Signals that ask a process to leave, and handlers that are put back afterwards."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

# SIGHUP says that the connection to a terminal is lost. Clusters warn before they kill: Slurm with any signal that
# --signal names, mostly SIGUSR1, and Grid Engine with SIGUSR1 and SIGUSR2. Windows has SIGTERM only.
LEAVE = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def leaving() -> list[signal.Signals]:
    """The signals of `LEAVE` that this system has, without those that are ignored, as nohup has SIGHUP ignored."""
    there = [signal.Signals[name] for name in LEAVE if name in signal.Signals.__members__]
    return [number for number in there if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def handled(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], object]]) -> Iterator[None]:
    """Handle signals meanwhile. They reach the main thread only: in another one nothing is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: one that was not set from Python and cannot be set from there
                signal.signal(number, handler)
