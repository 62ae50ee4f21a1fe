"""The process in which math-verify compares answers; it is run as a file and imports nothing of the project.

What it is given may be 9^{9^{9^9}}, and nothing inside of a process can stop all that follows from that.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress

SECONDS = 3.0  # of a processor for one comparison
ROOM = 2**31  # bytes


def serve() -> None:
    """The process: reads pairs from stdin, a line each, and says true or false."""
    from math_verify import parse, verify

    bound()
    out, sys.stdout = sys.stdout, sys.stderr  # what a package prints is no answer

    def same(right: str, given: str) -> bool:
        # One box each, so that there is one answer to compare; their own time limits need a main thread.
        both = [parse(f"\\boxed{{{text.replace('$', '')}}}", parsing_timeout=None) for text in (right, given)]
        return bool(verify(*both, timeout_seconds=None))

    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(limited(same, *json.loads(line))), file=out, flush=True)


def limited(same: Callable[[str, str], bool], right: str, given: str) -> bool:
    """The comparison, or False where it takes too long, too much memory, or fails otherwise."""
    try:
        import signal

        def stop(*_: object) -> None:
            raise TimeoutError

        if hasattr(signal, "setitimer"):  # elsewhere the clock of whoever asks is the limit
            signal.signal(signal.SIGPROF, stop)
            signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)  # again: a parser may swallow one
        try:
            return same(right, given)
        finally:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_PROF, 0)
    except Exception:  # whatever a parser of mathematics makes of a text
        return False


def bound() -> None:
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[1])
    serve()
