"""The life of a command: its first line comes at once, a mistake is one line, and it ends with an exit code.

Nothing heavy is imported here: a command prints its first line before it imports what takes seconds.
"""

import gc
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import rlkit
from rlkit.errors import Diverged, UserError, WorkerDied, one_line
from rlkit.terminal import first_of_several, harmless_warning, say, show_traceback, warn

STOPPED = "rlkit: stopped"
OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory", re.IGNORECASE)  # as torch's allocators tell it
FEW = 1_000  # objects; Python 3.12 itself begins with 375 that are frozen
SMALLER = "give fewer env.rows, a shorter horizon, a smaller group or network"


def guarded(command: Callable[[list[str]], int], argv: Sequence[str] | None = None, together: bool = False) -> int:
    """Carry out a command with its words, or with those of the command line, and return its exit code.

    together: whether several processes that torchrun started do it together.

    A user's mistake is one line and exit code 2; anything else that goes wrong is exit code 1.
    """
    fill_closed()
    warnings.formatwarning = harmless_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console that cannot show γ shows a question mark
    try:
        with leaving_imports():
            if first_of_several():
                say(f"rlkit {rlkit.__version__}")
            if not together and os.environ.get("TORCHELASTIC_RUN_ID") and os.environ.get("WORLD_SIZE", "1") != "1":
                if not first_of_several():
                    return 2
                raise UserError("torchrun starts processes of rlkit.run alone: start this command without it")
            return command(list(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        warn(f"rlkit: {error}")
        return 2
    except (Diverged, FloatingPointError, WorkerDied) as error:
        warn(f"rlkit: {error}")
        return 1
    except (MemoryError, RuntimeError, FileNotFoundError) as error:
        return _short_of_room(error)
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as stop:
        warn("; ".join([STOPPED, *map(str, stop.args)]))
        return 1
    except Exception:
        show_traceback()
        return 1


def _short_of_room(error: Exception) -> int:
    """One line where memory or the disk is full, else the whole traceback; and the exit code."""
    said = one_line(error)
    if isinstance(error, FileNotFoundError) and "temporary directory" in said:  # Python's own words
        warn("rlkit: no file can be written, neither here nor in the folder for temporary files: free some space")
        return 2
    if not isinstance(error, MemoryError) and not OUT_OF_MEMORY.search(said):
        show_traceback()
        return 1
    from rlkit.memory import free, gib

    warn(f"rlkit: memory ran out, {gib(free())} are free now: {SMALLER}")
    return 2


def fill_closed() -> None:
    """Where a shell closed a standard stream, its number would go to the next file, and what is printed into that."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


@contextmanager
def loading() -> Iterator[None]:
    """Import what a command needs without the garbage collector, which then leaves all of that out of its rounds.

    torch and what it brings make a million objects that stay to the end. Looking through them again and again takes a
    fifth of the time of their import, and longer than that as the process ends; a full round in between is as slow.
    """
    if not gc.isenabled() or gc.get_freeze_count() > FEW:  # the host program decides, and once is enough
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def leaving_imports() -> Iterator[None]:
    """Ctrl-C while something is imported ends the process at once, with one line.

    A KeyboardInterrupt would come out of an import as whatever the packages make of it: torch as a traceback of a
    broken NumPy, and some swallow it. Nothing was begun by then, so nothing is lost. At any other time it is raised.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                warn(STOPPED)
                os._exit(1)
            frame = frame.f_back
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
