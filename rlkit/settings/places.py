"""Files, folders and code that a configuration names: absolute paths, and marks by which a change is noticed.

The type of a field says what its text is (`rlkit.fields.File`, `Folder`, `Code`); its text is not guessed from.
"""

import ast
import hashlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

from rlkit.fields import Place
from rlkit.paths import home

WHOLE = 1 << 28  # bytes of a file that is read whole; of a larger one BLOCKS are, evenly spaced
BLOCK, BLOCKS = 1 << 20, 256
PYTHON = "<"  # begins the name of what was given in Python and has none
SUFFIXES = [*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES]  # of modules, in the order of Python's search
MODEL = ("*.json", "*.safetensors", "*.jinja", "additional_chat_templates/*.jinja")  # what counts in a model's folder


def marked(cls: type) -> dict[str, Place]:
    """The fields of a configuration that name files, folders or code."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: place for f in fields(cls) if (place := place_of(hints[f.name])) is not None}


def place_of(hint: object) -> Place | None:
    """The mark of a field's type, also where the field may be none."""
    if get_origin(hint) is Annotated:
        return next((note for note in get_args(hint)[1:] if isinstance(note, Place)), None)
    if hint is Path:
        return Place("file")
    inner = (place_of(part) for part in get_args(hint) if part is not type(None))
    return next((place for place in inner if place is not None), None)


def absolute(value: object, place: Place) -> object:
    """Texts, or collections of them, with absolute paths where it names what is there: a run can go on from elsewhere.

    A word of the field's own (tiny), a hub id and a module stay as they are. A Path always becomes absolute.
    """
    if isinstance(value, Path):
        return str(value.resolve())
    if isinstance(value, dict):
        return {key: absolute(item, place) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [absolute(item, place) for item in value]
    if not isinstance(value, str) or place.word(value) or value.startswith(PYTHON):
        return value
    if place.kind == "output":
        return os.path.realpath(home(value))
    if place.kind == "code":
        return ",".join(_absolute_entry(entry.strip(), place) for entry in value.split(","))
    there = os.path.exists if place.kind == "folder" else os.path.isfile  # a .gguf file is a model, too
    return absolute_path(value, there, linked=True)


def named(value: object, place: Place) -> Iterator[str]:
    """What a value stands for whose change is to be noticed: absolute paths, and modules by their dotted names.

    A Path to no file stands for nothing: it may be a folder, or what the plug-in writes.
    """
    held = list(value.values()) if isinstance(value, dict) else value
    texts = held if isinstance(held, list | tuple) else [held]
    for text in texts if place.kind != "output" else []:  # which changes as the run writes
        found = absolute(text, place)
        if not isinstance(found, str) or (isinstance(text, Path) and not os.path.isfile(found)):
            continue
        if place.kind != "code":
            yield from ([found, *_beside(found, place)] if os.path.isabs(found) else [])
            continue
        for entry in found.split(","):
            head, _, tail = entry.rpartition(":")
            yield from [tail] if place.models and head == "model" and os.path.isabs(tail) else []
            yield from sources(head or tail) if entry in outside(entry, place) else []


def outside(text: str, place: Place) -> list[str]:
    """The entries of a field that name code: FILE.py:NAME, MODULE:NAME.

    A word without a colon and .py names none, such as <...>, which was given in Python; neither does model:FOLDER where
    that holds weights. Whatever else an entry looks like, a file or a module may have that name.
    """
    entries = [entry.strip() for entry in text.split(",")]
    codes = [entry for entry in entries if ":" in entry or entry.endswith(".py")]
    return [entry for entry in codes if not (place.models and entry.startswith("model:"))]


def sources(name: str) -> list[str]:
    """A .py file, or a module and its packages, with the neighbors that these import (`from .helper import x`)."""
    found = {part: path for part in _way(name) if (path := located(part)) is not None}
    waiting = [*found.values()]
    while waiting:
        for neighbor in _neighbors(waiting.pop()):
            if neighbor not in found.values():
                found[str(neighbor)] = neighbor
                waiting.append(neighbor)
    return list(dict.fromkeys([name, *found]))


def _way(name: str) -> list[str]:
    """A path; or a dotted name and those of the packages around it, whose `__init__.py` run first."""
    parts = [] if os.path.isabs(name) else name.split(".")
    return [name, *(".".join(parts[:end]) for end in range(1, len(parts)))]


def located(name: str) -> Path | None:
    """The file behind a path or a dotted name; nothing is imported for it."""
    if os.path.isabs(name):
        return Path(name) if os.path.isfile(name) else None
    search: list[str] | None = None
    origin, parts = None, name.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        try:
            found = (finder.find_spec(name, search) for finder in sys.meta_path)
            spec = next((spec for spec in found if spec is not None), None)
            if spec is None:
                return None
            origin, search = spec.origin, list(spec.submodule_search_locations or [])
        except KeyError:  # a package without an __init__.py asks for the imported one around it
            origin, search = None, _portions(name, search or [])
    return Path(origin) if origin and os.path.isfile(origin) else None


def _portions(name: str, search: list[str]) -> list[str]:
    """The folders of a package without an `__init__.py`, as each entry of the path tells them."""
    finders = [finder for entry in search if (finder := pkgutil.get_importer(entry)) is not None]
    specs = [finder.find_spec(name, None) for finder in finders]
    return [folder for spec in specs if spec is not None for folder in spec.submodule_search_locations or []]


def mark(name: str) -> str:
    """The first digits of a SHA-256 over a file, a folder with a model, or a module; empty where there is none."""
    path = located(name)
    try:
        if path is not None:
            return _digest(path)[:16]
        if not os.path.isabs(name) or not os.path.isdir(name):
            return ""
        folder = Path(name, "model") if Path(name, "model", "config.json").is_file() else Path(name)
        files = sorted({path for pattern in MODEL for path in folder.glob(pattern) if path.is_file()})
        lines = (f"{path.relative_to(folder).as_posix()} {_digest(path)}\n" for path in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
    except OSError:  # where it is opened, the reason is said
        return ""


def _digest(path: Path) -> str:
    size, found = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        if size <= WHOLE:
            for start in range(0, size, BLOCK):  # what says that it is empty, such as a file of /proc, may never end
                found.update(file.read(min(BLOCK, size - start)))
        else:
            found.update(str(size).encode())
            for i in range(BLOCKS):
                file.seek(i * (size - BLOCK) // (BLOCKS - 1))
                found.update(file.read(BLOCK))
    return found.hexdigest()


def absolute_path(text: str, there: Callable[[str], bool], linked: bool = False) -> str:
    """The absolute path where there is such a file or folder; else the text.

    linked: a file that is a link stays one, as it is read by its name and with its neighbors. Code is not: it is run
    from where it leads.
    """
    path = str(home(text)) if text.startswith("~") else text
    if "\0" in path or not there(path):
        return text
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name) if linked and os.path.isfile(path) else os.path.realpath(path)


def _absolute_entry(entry: str, place: Place) -> str:
    head, _, tail = entry.rpartition(":")
    if place.models and head == "model":
        return f"model:{absolute_path(tail, os.path.isdir)}"
    return f"{absolute_path(head, os.path.isfile)}:{tail}" if head.endswith(".py") else entry


def _beside(path: str, place: Place) -> list[str]:
    """The neighbors of a file that are read with it, also those that are not there yet."""
    others = [str(Path(path).with_name(name)) for name in place.beside]
    return [other for other in others if other != path]


def _neighbors(path: Path) -> list[Path]:
    if path.suffix not in SOURCE_SUFFIXES:
        return []
    try:
        with path.open("rb") as file:
            tree = ast.parse(file.read(min(path.stat().st_size, WHOLE)))
    except (SyntaxError, ValueError, RecursionError, OSError):  # the import says so
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1] if node.level <= len(path.parents) else path.parent
            names = node.module.split(".") if node.module else []
            inside = [folder.joinpath(*names[:end]) for end in range(1, len(names) + 1)]
            package = folder.joinpath(*names)
            inside += [package / name for alias in node.names for name in _imported(alias.name, package)]
            found += [first for each in inside if (first := _found_first(each)) is not None]
    return found


def _imported(name: str, package: Path) -> list[str]:
    """A name; for * the modules of the package, as its `__all__` may name any of them and may be computed."""
    return [name] if name != "*" else [part.name for part in pkgutil.iter_modules([str(package)])]


def _found_first(module: Path) -> Path | None:
    """The file that Python takes for a module of a folder where several have its name: a package comes first."""
    names = [f"{module}{end}{suffix}" for end in (f"{os.sep}__init__", "") for suffix in SUFFIXES]
    return next((Path(name) for name in names if os.path.isfile(name)), None)
