"""The child process of `rlkit.text.process`: sets limits, then answers by a file's `answer(question)`.

It is run as a file and imports nothing from the project, which would take seconds.
"""

import json
import math
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import chain

ROOM = 2**32  # bytes
Reply = dict[str, object]


def serve(file: str) -> None:
    """Read questions from stdin, one line each with its seconds, and write the answer or the reason for none."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of packages, of their compiled parts, too, is not an answer
    answer = runpy.run_path(file)["answer"]
    bound()
    lines = (json.dumps(limited(answer, *json.loads(line))) for line in sys.stdin)
    for line in chain(["ready"], lines):
        out.write(f"{line}\n")
        out.flush()


def limited(answer: Callable[[object], object], seconds: float, question: object) -> Reply:
    """The answer within so many seconds of processor time, or the reason for none."""
    try:
        import signal

        def stop(*_: object) -> None:
            raise TimeoutError(f"it took more than {seconds:g} seconds")

        if hasattr(signal, "setitimer"):  # on other systems only the parent limits the time
            signal.signal(signal.SIGPROF, stop)
            signal.setitimer(signal.ITIMER_PROF, seconds, seconds)  # repeated: a parser may swallow the first exception
            end_after(seconds)
        try:
            return {"gave": answer(question)}
        finally:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_PROF, 0)
    except Exception as error:  # packages may raise anything for strange texts
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def end_after(seconds: float) -> None:
    """Let the system end this process one second later: Python's handlers do not run inside a library call."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        spent = resource.getrusage(resource.RUSAGE_SELF)
        most = math.ceil(spent.ru_utime + spent.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def bound() -> None:
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    serve(sys.argv[2])
