"""Common handling of commands: the first line comes at once, a mistake is one line, and there is an exit code.

Nothing heavy is imported here: a command prints its first line before its slow imports.
"""

import errno
import gc
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import rlkit
from rlkit import disk
from rlkit.errors import Diverged, UserError, WorkerDied, one_line, out_of_memory
from rlkit.terminal import first_of_several, harmless_warning, say, show_traceback, warn

STOPPED = "rlkit: stopped"
FEW = 1_000  # objects; Python 3.12 starts with 375 frozen ones
LACKS = "the system (?:opens|starts|writes) no more "  # a pattern: how each line of `lacking` begins
_left_out = False  # whether the collector leaves out what was imported
SMALLER = "give fewer env.rows, a shorter horizon, a smaller group or network"


def guarded(command: Callable[[list[str]], int], argv: Sequence[str] | None = None, together: bool = False) -> int:
    """Run a command with the given words, or with those of the command line, and return its exit code.

    together: whether it is meant to run in several processes that torchrun started.

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
            check_current_folder()
            return command(list(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        warn(f"rlkit: {error}")
        return 2
    except (Diverged, FloatingPointError, WorkerDied) as error:
        warn(f"rlkit: {error}")
        return 1
    except BrokenPipeError:  # the reader of the output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, RuntimeError, OSError) as error:
        return _short_of_room(error)
    except KeyboardInterrupt as stop:
        warn("; ".join([STOPPED, *map(str, stop.args)]))
        return 1
    except Exception:
        show_traceback()
        return 1


def _short_of_room(error: Exception) -> int:
    """Print one line if memory, the disk or what the system allows is used up, else the traceback.

    Returns: the exit code.
    """
    if said := lacking(error):
        warn(f"rlkit: {said}")
        return 2
    if not out_of_memory(error):
        show_traceback()
        return 1
    from rlkit.memory import free, gib

    warn(f"rlkit: memory ran out, {gib(free())} are free now: {SMALLER}")
    return 2


def lacking(error: BaseException) -> str:
    """What the system has none of for any run, as one line; else empty. Memory is not among it: settings take it up.

    A search knows these lines by `LACKS`: no trial counts as failed for them.
    """
    said, code, what = one_line(error), error.errno if isinstance(error, OSError) else None, ""
    if code in (errno.EMFILE, errno.ENFILE) or "Too many open files" in said:
        what = "opens no more files: close some, or raise ulimit -n"
    elif said.endswith(os.strerror(errno.EAGAIN)) or "can't start new thread" in said:
        what = "starts no more processes and threads: end some, or raise ulimit -u"
    elif isinstance(error, FileNotFoundError) and "temporary directory" in said:  # Python's own words
        what = "writes no more files, neither here nor in the folder for temporary files: free some space"
    elif isinstance(error, OSError) and code in disk.FULL:
        what = f"writes no more files: {disk.reason(error)}" + f" ({error.filename})" * bool(error.filename)
    return what and f"the system {what}"


def fill_closed() -> None:
    """Open closed standard streams: otherwise the next file gets their number, and output is written into that file."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def check_current_folder() -> None:
    """Refuse to work in a folder that was deleted: torch cannot be imported there, and relative paths lead nowhere."""
    try:
        os.getcwd()
    except OSError:
        raise UserError("the current folder was deleted: change to another one") from None


@contextmanager
def loading() -> Iterator[None]:
    """Import without the garbage collector, and exclude the imported objects from its later rounds.

    torch and its dependencies create a million objects that stay to the end. Collecting them repeatedly takes a fifth
    of their import time, and longer at the end of the process; a full collection in between is as slow.
    """
    global _left_out
    _left_out = _left_out or gc.get_freeze_count() > FEW  # once: counting a million objects takes 0.02 seconds
    if _left_out or not gc.isenabled():  # the host program decides, and once is enough
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        _left_out = True


@contextmanager
def leaving_imports() -> Iterator[None]:
    """Make Ctrl-C during imports end the process at once, with one line.

    Packages handle a KeyboardInterrupt during their import in odd ways: torch prints a traceback of a broken NumPy, and
    some ignore it. No work has begun by then, so nothing is lost. At any other time the exception is raised.
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
