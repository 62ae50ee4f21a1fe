"""The process that keeps a run on another machine: `python keeper.py FOLDER SECONDS`, asked by lines of JSON.

It outlives its parent by as long as the run takes to write its last checkpoint, and removes the folder.
It needs Python alone, so it is small and starts at once.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

POLL = 0.1  # seconds between two looks at the run


def main(folder: str, patience: str) -> None:
    if os.fork():  # so that ending all children of its parent does not end this one
        os._exit(0)
    os.setsid()
    run: subprocess.Popen[bytes] | None = None
    asked: float | None = None  # when the run was asked to leave
    told, pending, there = False, b"", True  # there: the process that asks
    while there or run is not None:
        if there and select.select([0], [], [], POLL)[0]:
            data = os.read(0, 1 << 16)
            there = bool(data)
            *lines, pending = (pending + data).split(b"\n")
            for line in map(json.loads, lines):
                run = start(**line) if line else run
                asked = asked if line else leave(run)
        elif not there:
            time.sleep(POLL)
        if not there and asked is None:
            asked = leave(run)
        if run is None:
            continue
        if asked is not None and time.monotonic() - asked > float(patience):
            end(run)
        if (code := run.poll()) is not None:
            end(run)
            if there and not told:
                with suppress(OSError):  # it may have gone since
                    os.write(1, b"%d\n" % code)
                told = True
            run = None
    shutil.rmtree(folder, ignore_errors=True)


def start(command: list[str], directory: str, console: str, variables: dict[str, str]) -> "subprocess.Popen[bytes]":
    with open(console, "ab") as said:
        return subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def leave(run: "subprocess.Popen[bytes] | None") -> float:
    """Ask a run to write a checkpoint and to end; the time."""
    if run is not None and run.poll() is None:
        run.terminate()
    return time.monotonic()


def end(run: "subprocess.Popen[bytes]") -> None:
    """End what is left of a run, with the processes that it started."""
    with suppress(OSError):  # nothing is left
        os.killpg(run.pid, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
