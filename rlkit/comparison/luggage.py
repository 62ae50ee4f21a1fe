"""What a run names outside rlkit, for a machine that shares no files: what is sent along, and where it lies there.

A folder of its own stands for / there: a file lies in it under the same path, and config.yaml names it so.
"""

import copy
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlkit.comparison.grid import Job
from rlkit.errors import UserError
from rlkit.recording.files import is_file, read_text
from rlkit.settings import places, repeat, sections, strict_yaml
from rlkit.settings.sections import Sections

MOST = 1 << 30  # bytes of the largest file or folder that is sent along
LEFT_OUT = {"checkpoints"}  # folders of a run folder that no other run reads


def luggage(job: Job) -> tuple[dict[str, Path], dict[str, str]]:
    """The files and folders that are sent along, by name; and what must be there already, with its mark.

    Modules in the directory of the command are sent, those of installed packages are not, nor are their neighbors.
    """
    marks = {name: mark for name, mark in job.config.get("marks", {}).items() if mark}
    modules = {name: path for name in marks if not os.path.isabs(name) and (path := places.located(name)) is not None}
    own = {name: path for name, path in modules.items() if path.is_relative_to(job.directory)}
    installed = [path.parent for name, path in modules.items() if name not in own]
    files = {name: Path(name) for name in marks if os.path.isabs(name)}
    sent = {
        name: path
        for name, path in files.items()
        if not any(path.is_relative_to(folder) for folder in installed) and size(path) <= MOST
    }
    return own | sent, {name: mark for name, mark in marks.items() if name not in sent}


def refuse_lacking(name: str, machine: str) -> None:
    """Raises: UserError, as a machine has not what must be there."""
    if not os.path.isabs(name):
        raise UserError(f"{name} is not on {machine} as it is here: install it there, or give it as a .py file")
    raise UserError(f"{name} is not on {machine} as here, and too large to be sent: put it there under the same path")


def inside(path: Path) -> list[tuple[str, Path]]:
    """The files of a file or a folder, with the names that they are sent under."""
    if path.is_file():
        return [(str(path).lstrip("/"), path)]
    folder = path / "model" if is_file(path / "model" / "config.json") else path
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("."))
        found += [Path(place, name) for name in sorted(names)]
    return [(str(each).lstrip("/"), each) for each in found if each.is_file()]


def size(path: Path) -> int:
    return sum(each.stat().st_size for _, each in inside(path))


def config_text(job: Job, root: str, sent: Sequence[str]) -> str:
    """The config.yaml of the run on the other machine, where `root` stands for /.

    The run takes the device that it was given there, and not any other that it could find.
    """
    path = job.folder / "config.yaml"
    held: Sections = sections.read(path) if is_file(path) else copy.deepcopy(job.config)
    first = read_text(path).partition("\n")[0] if is_file(path) else repeat.line(job.words)
    for name in ("algo", "env", "policy"):
        if name in held:
            held[name] = {key: moved(value, root, sent) for key, value in held[name].items()}
    if "marks" in held:
        held["marks"] = {root + name if name in sent else name: mark for name, mark in held["marks"].items()}
    held["run"]["device"] = "cuda" if gpus(job) else "cpu"
    return f"{first}\n{strict_yaml.dump(held)}"


def moved(value: object, root: str, sent: Iterable[str]) -> object:
    """A value with its paths as they are on the other machine: PATH, PATH:NAME, model:PATH, and several of them."""
    if isinstance(value, list):
        return [moved(item, root, sent) for item in value]
    if isinstance(value, dict):
        return {key: moved(item, root, sent) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    return ",".join(_moved(entry, root, sent) for entry in value.split(","))


def _moved(entry: str, root: str, sent: Iterable[str]) -> str:
    kind = "model:" if entry.startswith("model:") else ""
    path = entry.removeprefix(kind)
    there = any(path == each or path.startswith(f"{each}:") for each in sent)
    return f"{kind}{root}{path}" if there else entry


def gpus(job: Job) -> int:
    """How many GPUs a run is given: one where it asks for it."""
    return int(str(job.config["run"]["device"]).startswith("cuda"))


def cpus(job: Job) -> int:
    """How many cores a run is given."""
    return max(1, int(job.config["run"]["threads"]))
