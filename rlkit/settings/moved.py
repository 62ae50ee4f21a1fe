"""What a run names outside rlkit and what has moved since: the same files at another place go on with the run."""

import os
import re

from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.settings import places
from rlkit.settings.given import SECTIONS, Given

ENTRY = re.compile(r"(model:)?([^:]*)(:.*)?", re.DOTALL)  # model:FOLDER, FILE.py:NAME, or a path alone


def follow(line: Given, held: Given) -> None:
    """Let a run's configuration name the new places that `line` gives for its files and folders.

    The marks tell what was there when the run began. A key that names something else stays as it is.

    Raises: UserError where the run's own files are gone, and what `line` gives in their place differs from them.
    """
    for section in SECTIONS:
        keys = held.section(section)
        for key, told in line.section(section).items():
            was, name = keys.get(key), section if key == "name" else f"{section}.{key}"
            if isinstance(was, str) and isinstance(told, str) and was.count(",") == told.count(","):
                pairs = zip(was.split(","), told.split(","), strict=True)
                keys[key] = ",".join(entry(one, other.strip(), held, name) for one, other in pairs)


def entry(was: str, told: str, held: Given, key: str) -> str:
    """An entry with the path that `told` has for it, where the same content is; the marks move with it."""
    model, old, name = parts(was)
    other_model, path, other_name = parts(told)
    there = "\0" not in path and os.path.exists(home(path))
    if old not in held.marks or (model, name) != (other_model, other_name) or not there:
        return was
    new = places.absolute_path(str(home(path)), os.path.exists, linked=not path.endswith(".py"))
    if new == old:
        return was
    together = {old: new, **neighbors(old, new, held)}
    for before, now in together.items():
        if places.mark(now) != held.marks[before]:
            if places.mark(old):  # where it was, it still is
                return was
            raise UserError(f"{key}={told}: {now} is not what {before} was when the run {held.folder} began: give that")
    for before, now in together.items():
        held.marks[now] = held.marks.pop(before)
    return f"{model}{new}{name}"


def neighbors(old: str, new: str, held: Given) -> dict[str, str]:
    """The files that go with one: what a .py file imports from beside it, or files of the same kind in its folder."""
    folder, ending = os.path.dirname(old), os.path.splitext(old)[1]
    if ending == ".py":
        ways = [os.path.relpath(path, os.path.dirname(new)) for path in places.sources(new)]
    else:
        ways = [os.path.relpath(mark, folder) for mark in held.marks if ending and mark.endswith(ending)]
        ways = [way for way in ways if os.path.basename(way) == way]
    both = {os.path.normpath(os.path.join(folder, way)): os.path.join(os.path.dirname(new), way) for way in ways}
    return {before: os.path.normpath(now) for before, now in both.items() if before in held.marks and before != old}


def parts(text: str) -> tuple[str, str, str]:
    """model: or nothing, the path, and :NAME or nothing."""
    found = ENTRY.fullmatch(text)
    assert found is not None, "it takes every text"
    return found[1] or "", found[2], found[3] or ""
