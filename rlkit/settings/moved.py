"""What a run names outside rlkit and what has moved since: the same files at another place go on with the run."""

import os
from dataclasses import dataclass, field

from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.settings import places
from rlkit.settings.given import SECTIONS, Given


@dataclass
class Moves:
    """Where the marked files and folders of a run lie now."""

    held: Given
    was: dict[str, str] = field(default_factory=dict)  # new place → old one; several entries may name one file

    def named(self) -> set[str]:
        """The places that the configuration names itself."""
        values = (value for section in SECTIONS for value in self.held.section(section).values())
        return {parts(one)[1] for value in values for one in entries(value, self.is_path(value))}

    def is_path(self, value: object) -> bool:
        """Whether a text is one marked path as a whole: there may be commas in it."""
        return isinstance(value, str) and value in self.held.marks


def follow(line: Given, held: Given) -> None:
    """Let a run's configuration name the new places that `line` gives for its files and folders.

    The marks tell what was there when the run began. A key that names something else stays as it is.

    Raises: UserError where the run's own files are gone, and what `line` gives in their place differs from them.
    """
    moves = Moves(held)
    for section in SECTIONS:
        keys = held.section(section)
        for key, told in line.section(section).items():
            was, name = keys.get(key), section if key == "name" else f"{section}.{key}"
            olds, news = (entries(value, moves.is_path(was)) for value in (was, told))
            if olds and len(olds) == len(news):
                now = [entry(one, other.strip(), moves, name) for one, other in zip(olds, news, strict=True)]
                keys[key] = ",".join(now) if isinstance(was, str) else now
    held.marks |= {now: held.marks[before] for now, before in moves.was.items()}
    for before in {*moves.was.values()} - moves.named() - moves.was.keys():
        if places.mark(before) != held.marks[before]:  # else code that stays may import it
            del held.marks[before]


def entries(value: object, whole: bool) -> list[str]:
    """What a key names: a text as a whole or its parts between commas, or the texts of a list."""
    texts = [value] if whole else value.split(",") if isinstance(value, str) else value
    found = texts if isinstance(texts, list | tuple) else []
    return list(found) if all(isinstance(text, str) for text in found) else []


def entry(was: str, told: str, moves: Moves, key: str) -> str:
    """An entry with the path that `told` has for it, where the same content is; the marks move with it."""
    held = moves.held
    model, old, name = parts(was)
    other_model, path, other_name = parts(told)
    if old not in held.marks or (model, name) != (other_model, other_name):
        return was
    new = places.absolute_path(os.path.abspath(home(path)), os.path.exists, linked=not path.endswith(".py"))
    if new == old:
        return was
    together = {old: new, **neighbors(old, new, moves)}
    for before, now in together.items():
        if not os.path.exists(new) or (places.mark(now) != held.marks[before] and held.trust != "changed"):
            if places.mark(old):  # where it was, it still is
                return was
            raise UserError(
                f"{key}={told}: {now} is not what {before} was when the run {held.folder} began: give that, or accept "
                "the change with trust=changed"
            )
    moves.was |= {now: before for before, now in together.items()}
    return f"{model}{new}{name}"


def neighbors(old: str, new: str, moves: Moves) -> dict[str, str]:
    """The files that go with one: what a .py file imports from beside it, or files of the same kind in its folder.

    What the configuration names itself has a key of its own.
    """
    folder, ending, marks = os.path.dirname(old), os.path.splitext(old)[1], moves.held.marks
    if ending == ".py":
        ways = [os.path.relpath(path, os.path.dirname(new)) for path in places.sources(new)]
    else:
        ways = [os.path.relpath(mark, folder) for mark in marks if ending and mark.endswith(ending)]
        ways = [way for way in ways if os.path.basename(way) == way and os.path.join(folder, way) not in moves.named()]
    both = {os.path.normpath(os.path.join(folder, way)): os.path.join(os.path.dirname(new), way) for way in ways}
    return {before: os.path.normpath(now) for before, now in both.items() if before in marks and before != old}


def parts(text: str) -> tuple[str, str, str]:
    """model: or nothing, the path, and :NAME behind a .py file or nothing."""
    head, colon, name = text.rpartition(":")
    if head.endswith(".py"):
        return "", head, f"{colon}{name}"
    model = text.startswith("model:")
    return "model:" if model else "", text.removeprefix("model:"), ""
