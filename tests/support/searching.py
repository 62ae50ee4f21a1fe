"""Carry generated lines and files out in a sandbox, and say which broke a promise and how to see it again.

    PYTHONPATH=.:tests python -m support.searching lines 0 100 200      lines 100 to 199 of seed 0
    PYTHONPATH=.:tests python -m support.searching lines 0 1234         one of them, with all that it says
"""

import json
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from support.forked import End, Job, Warm
from support.lines import EVALUATED, RUNS, TEXT, Line, Lines
from support.sandbox import furnish, snapshot, touched, verdict

PATIENCE = 2.0  # seconds that a line may work which asks for more than one can wait for
WRITES = {"run": True, "compare": True, "new": True, "evaluate": True}  # the commands that may leave something


def prepared(warm: Warm, folder: Path) -> dict[str, Path]:
    """The runs that lines and files are about, each made once."""
    made = {}
    for name, words in RUNS.items():
        small = EVALUATED if words[1].removeprefix("env=") in TEXT else EVALUATED[2:]
        end = warm.run(Job(("run", *words, *small, f"out={name}"), str(folder)))
        assert end.code == 0, end.err
        made[name] = folder / name
    return made


def carried_out(warm: Warm, runs: dict[str, Path], line: Line) -> tuple[End, list[str]]:
    """A line's end, and the promises that it broke."""
    with TemporaryDirectory(prefix="rlkit-search-") as place:
        root = Path(place)
        box = furnish(root, {name: runs[name] for name in line.runs})
        before = snapshot(root)
        environ = {"HOME": str(root / "outside" / "home"), **line.environ}
        patience = PATIENCE if line.long and line.stage == "whole" else None
        end = warm.run(Job(line.words, str(box), line.stage, line.output, environ, patience=patience))
        found = verdict(end) if line.output == "files" or end.why != "ended" else spoiled(end)
        changed = touched(before, snapshot(root), own=tuple(f"box/{name}" for name in line.runs))
        found += [f"{path} was changed" for path in changed if path in before and path != "box"]
        if not WRITES.get(line.words[0]) and (made := [path for path in changed if path not in before]):
            found.append(f"{made[0]} was made")
        found += [f"{path} was made" for path in changed if path not in before and not path.startswith("box/")]
    return end, found


def spoiled(end: End) -> list[str]:
    """With a stdout that takes nothing a command may fail, but not with a traceback."""
    return [problem for problem in verdict(end) if problem.startswith(("a traceback", "it hangs", "a control"))]


def told(line: Line, seed: int) -> str:
    """The line as one types it, and how to run it here again."""
    words = [word if len(word) < 200 else f"{word[:60]}... ({len(word)} letters)" for word in line.words]
    shown = shlex.join(("python", "-m", "rlkit", *words)).encode("unicode_escape").decode()
    environ = "".join(f"{key}={text!r} " for key, text in line.environ.items())
    spoilt = "" if line.output == "files" else f"  (stdout is {line.output})"
    again = f"PYTHONPATH=.:tests python -m support.searching lines {seed} {line.index}"
    return f"{environ}{shown}{spoilt}\n    stage {line.stage}; again: {again}"


def main(kind: str, seed: str, first: str, end: str = "") -> int:
    begin, last = int(first), int(end or int(first) + 1)
    lines = Lines(int(seed))
    chosen = list(islice(lines, begin, last))
    count, began, ends = 0, time.monotonic(), Counter[str]()
    with Warm() as warm, TemporaryDirectory(prefix="rlkit-search-runs-") as place:
        runs = prepared(warm, Path(place))
        print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
        began, cpu = time.monotonic(), 0.0
        for line in chosen:
            done, problems = carried_out(warm, runs, line)
            cpu += done.cpu
            ends[f"{done.why} {done.code} {line.stage}"] += 1
            if problems or not end:
                count += bool(problems)
                print(f"\n{told(line, int(seed))}", *problems, sep="\n    ", flush=True)
            if not end:
                print(f"{done.why}, exit code {done.code}, {done.seconds:.2f} s\n{done.out}\n{done.err}")
    print(f"{len(chosen)} lines, {count} broke a promise, {time.monotonic() - began:.0f} s, {cpu:.0f} s of processor", dict(ends))
    print(lines.report())
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
