"""The life of a command: its first line comes at once, a mistake is one line, and it ends with an exit code.

Nothing heavy is imported here: a command prints its first line before it imports what takes seconds.
"""

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import rlkit
from rlkit.errors import Diverged, UserError


def guarded(command: Callable[[list[str]], int], argv: Sequence[str] | None = None) -> int:
    """Carry out a command with its words, or with those of the command line, and return its exit code.

    A user's mistake is one line and exit code 2; anything else that goes wrong is exit code 1.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console that cannot show γ shows a question mark
    try:
        print(f"rlkit {rlkit.__version__}", flush=True)
        return command(list(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        print(f"rlkit: {error}", file=sys.stderr)
        return 2
    except (Diverged, FloatingPointError) as error:
        print(f"rlkit: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as stop:
        print("; ".join(["rlkit: stopped", *map(str, stop.args)]), file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
