"""docs/errors.md as a transcript: what is typed, and the line that must come."""

import importlib
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rlkit.api import UserError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
DURING = "While it runs"  # the part of the page whose mistakes show after a run has started
FROM_PYTHON = "From Python"  # the part whose mistakes are exceptions
# What importing these needs; a page that says `pip uninstall NAME` is tested with them out of reach.
NEEDS = {"box2d": ("Box2D", "gymnasium.envs.box2d", "gymnasium.envs.box2d.lunar_lander")}


@dataclass(frozen=True)
class Entry:
    """One fenced block: the commands, the last of which says `lines` on stderr and ends with exit code `code`."""

    part: str
    commands: tuple[str, ...]
    lines: tuple[str, ...]  # all of stderr
    code: int

    @property
    def name(self) -> str:
        return self.commands[-1].removeprefix("python -m ")[:100]

    @property
    def pattern(self) -> str:
        """The lines as a regular expression, where `...` is anything."""
        return ".*".join(re.escape(part) for part in "\n".join(self.lines).split("..."))


def entries(text: str) -> list[Entry]:
    """Every block of the page with an error in it."""
    found = []
    for part, commands, output in blocks(text):
        if output:
            code = 1 if part == FROM_PYTHON else 2
            if commands[-1] == "echo $?":
                *output, code = *output[:-1], int(output[-1])
            found.append(Entry(part, tuple(c for c in commands if c != "echo $?"), tuple(output), code))
    return found


def shared(text: str) -> list[str]:
    """The commands of the blocks that end without an error: what other entries start from, under runs/."""
    return [command for _, commands, output in blocks(text) if not output for command in commands]


def blocks(text: str) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """The console blocks: part of the page, commands (`$ `, continued by `> `), and lines of output."""
    found, part = [], ""
    for title, block in re.findall(r"^## ([^\n]+)$|^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        part = title or part
        if not block:
            continue
        commands: list[str] = []
        output = []
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append(line[2:])
            elif line.startswith("> ") or line == ">":
                commands[-1] += "\n" + line[2:]
            else:
                output.append(line)
        found.append((part, tuple(commands), output))
    return found


def script(path: str) -> int:
    """Run a file as `python FILE` does; of a traceback only the last line is printed."""
    try:
        runpy.run_path(path, run_name="__main__")
    except UserError as error:
        print(f"rlkit.api.UserError: {error}", file=sys.stderr)
        return 1
    return 0


class Shell:
    """Carries commands out in a folder: rlkit's in this process, `pip uninstall` by hiding, all others by bash."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder, self.monkeypatch, self.started = folder, monkeypatch, []
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)  # as `python -m` does
        monkeypatch.setattr("sys.dont_write_bytecode", True)

    def __call__(self, command: str) -> int:
        words = shlex.split(command)
        if words[:2] == ["python", "-m"] and words[2].partition(".")[0] == "rlkit":
            return importlib.import_module("rlkit.__main__" if words[2] == "rlkit" else words[2]).main(words[3:])
        if words[0] == "python" and words[1].endswith(".py"):
            return script(words[1])
        if words[:2] == ["pip", "uninstall"]:
            for name in NEEDS.get(words[2], (words[2],)):
                self.monkeypatch.setitem(sys.modules, name, None)
            return 0
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
        self.started.append(subprocess.Popen(["bash", "-ec", command], cwd=self.folder, **quiet))
        return self.started[-1].wait()

    def close(self) -> None:
        """End what was started in the background."""
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def files(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if not path.name.startswith(".")}
