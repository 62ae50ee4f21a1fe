"""A folder to run a command in, canaries outside of it, and the verdict on what the command did."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from support.forked import End

QUESTIONS = [{"question": f"{n} + 2 = ?", "answer": f"{n} + 2 = {n + 2}\n#### {n + 2}"} for n in range(12)]
PAIRS = [{"prompt": f"{n} + 2 = ?", "chosen": f"#### {n + 2}", "rejected": "#### 0"} for n in range(24)]

# What a terminal or a reader could be fooled with: C0, DEL, C1, bidirectional controls, line and paragraph separators.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
DIVERGED = re.compile(r"not finite|diverged", re.IGNORECASE)
MISSING = re.compile(r"^! Missing: ", re.MULTILINE)  # of a comparison, which reports the runs that there are

State = dict[str, str]  # path → what is there, as a text that two equal things share


def furnish(root: Path, runs: Mapping[str, Path], place: str = "box") -> Path:
    """Make `root/PLACE`, where a command starts, with files, folders, links and runs; outside are the canaries."""
    box, outside = root / place, root / "outside"
    (box / "folder").mkdir(parents=True)
    (outside / "folder").mkdir(parents=True)
    (outside / "home").mkdir()
    for path in (
        box / "file.txt",
        box / "folder" / "mine.txt",
        outside / "canary.txt",
        outside / "folder" / "canary.txt",
    ):
        path.write_text("mine\n")
    for name, rows in (("rows", QUESTIONS), ("pairs", PAIRS), ("empty", [])):
        (box / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (box / "torn.jsonl").write_text((box / "rows.jsonl").read_text()[:-20])
    (box / "link").symlink_to(outside / "folder")
    (box / "dangling").symlink_to(outside / "nothing")
    for name, run in runs.items():
        shutil.copytree(run, box / name, symlinks=True)
    return box


def snapshot(folder: Path) -> State:
    """What a folder holds; links are not followed."""
    found: State = {}
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(at, name)
            found[str(path.relative_to(folder))] = _content(path)
    return found


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"link {os.readlink(path)}"
    if path.is_file():
        return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return "folder" if path.is_dir() else "special"


def touched(before: State, after: State, own: tuple[str, ...] = ()) -> list[str]:
    """What was changed, lost or made, except below `own`."""
    found = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return [name for name in found if not any(name == top or name.startswith(f"{top}/") for top in own)]


def verdict(end: End) -> list[str]:
    """What a command did that none may do: exit 0, or one line and exit 2; no traceback, no control character.

    A comparison without some of its runs ends with 1, and its report names them.
    """
    found = []
    told = [line for line in end.err.split("\n") if line.startswith("rlkit: ")]
    if end.why == "hangs":
        return [f"it hangs ({end.seconds:.0f} s, of which {end.cpu:.0f} s at work)"]
    if end.why == "cut":
        return _spoken(end)
    if "Traceback" in end.err or "Traceback" in end.out:
        found.append(f"a traceback{frame(end.err)}: {last_line(end.err)}")
    elif end.code == 1 and MISSING.search(end.out):
        return _spoken(end)
    elif end.code not in (0, 2) and not (end.code == 1 and len(told) == 1 and DIVERGED.search(told[0])):
        found.append(f"exit code {end.code}: {last_line(end.err)}")
    elif end.code and len(told) != 1:
        found.append(f"{len(told)} lines begin with rlkit: {end.err[:300]!r}")
    elif end.code == 2 and not end.err.endswith(f"{told[0]}\n"):
        found.append(f"more than one line: {end.err[:300]!r}")
    if warned := re.search(r"^.*Warning: .*$", end.err, re.MULTILINE):
        found.append(f"a warning that is Python's own: {warned[0][:300]}")
    return found + _spoken(end)


def _spoken(end: End) -> list[str]:
    return [
        f"a control character in {name}: {text[max(0, at.start() - 40) : at.end() + 40]!r}"
        for name, text in (("stdout", end.out), ("stderr", end.err))
        if (at := CONTROL.search(text))
    ]


def frame(text: str) -> str:
    """Where in the project a traceback ended."""
    frames = re.findall(r'File "[^"]*/((?:rlkit|algorithms|envs)/[^"]+)", line (\d+)', text)
    return " at {}:{}".format(*frames[-1]) if frames else ""


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line.strip()[:300] for line in reversed(text.splitlines()) if line.strip()), "nothing is said")
