"""Carry generated lines and files out in a sandbox, and say which broke a promise and how to see it again.

PYTHONPATH=.:tests python -m support.searching lines 0 100 200      lines 100 to 199 of seed 0
PYTHONPATH=.:tests python -m support.searching lines 0 1234         one of them, with all that it says
PYTHONPATH=.:tests python -m support.searching files 0 100 200      damaged and hostile files, likewise
PYTHONPATH=.:tests python -m support.searching folders 0 100 200    the same in the folders of comparisons and searches
"""

import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.forked import End, Job, Warm, as_process
from support.hostile import Case, Cases
from support.hostile_folders import HELD, FolderCases
from support.lines import EVALUATED, RUNS, TEXT, Line, Lines
from support.sandbox import furnish, snapshot, touched, verdict

DEADLINE = 300.0  # seconds until it counts as hanging, also on a busy machine; an endless loop ends at its BUSY seconds
SLOW = 15.0  # seconds of processor that one of them may take, so that none counts as hanging on a slower machine
PATIENCE = 2.0  # seconds that a line may work which asks for more than one can wait for
FONTS = re.compile(r"outside/home/\.(cache|config)(/matplotlib(/fontlist[^/]*)?)?")  # what matplotlib keeps
DRAWING = {"env=minigrid", "env=minatar"}  # their packages import matplotlib
SOURCES: dict[str, type[Lines] | type[Cases]] = {"lines": Lines, "files": Cases, "folders": FolderCases}
WRITES = ("run", "compare", "new", "evaluate", "tune")  # the commands that may leave something


def prepared(warm: Warm, folder: Path) -> dict[str, Path]:
    """The runs that lines and files are about, each made once."""
    made = {}
    for name, words in RUNS.items():
        small = EVALUATED if words[1].removeprefix("env=") in TEXT else EVALUATED[2:]
        end = warm.run(Job(("run", *words, *small, f"out={name}"), str(folder)))
        assert end.code == 0, f"{end.why}: {end.err}"
        made[name] = folder / name
    return made


def held(warm: Warm, folder: Path) -> dict[str, Path]:
    """A finished comparison and a finished search, each made once."""
    for words in HELD.values():
        end = warm.run(Job(words, str(folder), deadline=600.0))
        assert end.code == 0, f"{end.why}: {end.err}"
    return {name: folder / name for name in HELD}


def search(
    warm: Warm, runs: dict[str, Path], source: Lines | Cases | Iterator[Line], which: range, real: bool = False
) -> None:
    """Try those lines or files of a source; what broke a promise fails the test."""
    seed = 0 if isinstance(source, Iterator) else source.seed
    broken = []
    for asked in islice(source, which.start, which.stop):
        if problems := carried_out(warm, runs, asked, seed, real)[1]:
            broken.append("\n    ".join([told(asked, seed), *problems]))
    if broken:
        pytest.fail("\n\n".join(["", *broken, f"{len(broken)} of {len(which)} broke a promise"]), pytrace=False)


def carried_out(
    warm: Warm, runs: dict[str, Path], asked: Line | Case, seed: int, real: bool = False
) -> tuple[End, list[str]]:
    """How a line or a file ended, and the promises that were broken; `real`: as a process of its own."""
    with TemporaryDirectory(prefix="rlkit-search-") as place:
        root = Path(place)
        environ = {"HOME": str(root / "outside" / "home")}
        if isinstance(asked, Line):
            there = asked.runs
            box = furnish(root, {name: runs[name] for name in there}, asked.place)
            job = Job(asked.words, str(box), asked.stage, asked.output, environ | asked.environ)
        else:
            there = (asked.run, "other")
            box = furnish(root, {name: runs[name] for name in there})
            asked.damage(box, root / "outside", seed)
            job = Job(asked.words, str(box), asked.stage, environ=environ)
        job = replace(job, deadline=DEADLINE)
        before = snapshot(root)
        if asked.long and asked.stage == "whole":
            job = replace(job, patience=PATIENCE)
        end = as_process(job) if real else warm.run(job)
        found = verdict(end) if job.output == "files" or end.why != "ended" else spoiled(end)
        goes_on = isinstance(asked, Case) and f"out={asked.run}" in asked.words
        own = tuple(f"{box.name}/{name}" for name in there) if goes_on or asked.words[0] in ("run", "evaluate") else ()
        changed = touched(before, snapshot(root), own)
        found += [f"{path} was changed" for path in changed if path in before and path != box.name]
        drawn = real and (asked.words[0] == "compare" or DRAWING & {*asked.words})  # docs/security.md says so
        made = [path for path in changed if path not in before and not (drawn and FONTS.fullmatch(path))]
        if asked.words[0] not in WRITES and made:
            found.append(f"{made[0]} was made")
        found += [f"{path} was made" for path in made if not path.startswith(f"{box.name}/")]
    return end, found


def spoiled(end: End) -> list[str]:
    """With a stdout that takes nothing a command may fail, but not with a traceback."""
    return [problem for problem in verdict(end) if problem.startswith(("a traceback", "it hangs", "a control"))]


def told(asked: Line | Case, seed: int) -> str:
    """The line as one types it, what is wrong with which file, and how to run it here again."""
    words = [word if len(word) < 200 else f"{word[:60]}... ({len(word)} letters)" for word in asked.words]
    shown = shlex.join(("python", "-m", "rlkit", *words)).encode("unicode_escape").decode()
    if isinstance(asked, Case):
        what, kind = f"{asked.file}: {asked.way}\n", "folders" if asked.run in HELD else "files"
    else:
        what, kind = "".join(f"{key}={text!r} " for key, text in asked.environ.items()), "lines"
        what += "" if asked.place == "box" else f"in {asked.place!r} "
        shown += "" if asked.output == "files" else f"  (stdout is {asked.output})"
    again = f"PYTHONPATH=.:tests python -m support.searching {kind} {seed} {asked.index}"
    return f"{what}{shown}\n    stage {asked.stage}; again: {again}"


def main(kind: str, seed: str, first: str, end: str = "") -> int:
    begin, last = int(first), int(end or int(first) + 1)
    source = SOURCES[kind](int(seed))
    count, began, ends, cpu = 0, time.monotonic(), Counter[str](), 0.0
    with Warm() as warm, TemporaryDirectory(prefix="rlkit-search-runs-") as place:
        runs = prepared(warm, Path(place)) | (held(warm, Path(place)) if kind == "folders" else {})
        for asked in islice(source, begin, last):
            done, problems = carried_out(warm, runs, asked, int(seed))
            cpu += done.cpu
            ends[f"{done.why} {done.code} {asked.stage}"] += 1
            if done.cpu > SLOW:
                problems.append(f"{done.cpu:.0f} s of processor: a machine of half the speed comes near the deadline")
            count += bool(problems)
            if problems or not end:
                print(f"\n{told(asked, int(seed))}", *problems, sep="\n    ", flush=True)
            if not end:
                print(f"{done.why}, exit code {done.code}, {done.seconds:.2f} s\n{done.out}\n{done.err}")
    print(f"{last - begin} {kind}, {count} broke a promise, {time.monotonic() - began:.0f} s, {cpu:.0f} s of processor")
    print(dict(ends), source.report(), sep="\n")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
