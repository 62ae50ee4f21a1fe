"""Loads code from outside rlkit from its source files, never from Python's cached bytecode, which may differ.

Loaded files are recorded, so that a later edit is noticed. A plug-in or a reward in a file, and its neighbors, are run
again for each run, in a package of the run's own. A module with a dotted name is not run again, since its importers
hold its classes.
"""

import hashlib
import importlib
import importlib.util
import itertools
import os
import re
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from rlkit.disk import reason
from rlkit.errors import UserError, one_line

FUTURE = 60 * 10**9  # nanoseconds; a file of a later time than that from now was written by another clock
DEEPEST = 100  # packages inside each other; Python looks for them recursively, and ends in a RecursionError
FOLDER = "rlkit_folder_"  # prefix of the package that holds the files of a folder
NO_TEXT = (*EXTENSION_SUFFIXES, *BYTECODE_SUFFIXES)
TOO_HIGH = ("beyond top-level package", "no known parent package")  # endings of the message for `from ..x import y`


class NotPython(UserError, ImportError):
    """A neighbor that is not a .py file; its importer may handle this as any ImportError."""


class Fresh(SourceFileLoader):
    """Compiles a file each time: a .pyc in its folder may contain other code with matching metadata."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        try:
            data = self.get_data(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {reason(error)}; fix that or give another") from None
        FINDER.ran[fullname] = path, _digest(data)
        try:
            code: CodeType = self.source_to_code(data, path)
        except SyntaxError as error:
            error.filename = error.filename or path  # it is not said of a file with null bytes
            raise
        return code


class Finder(MetaPathFinder):
    """Finds modules of some packages where Python does, and compiles them each time."""

    def __init__(self) -> None:
        self.packages: set[str] = set()
        self.ran: dict[str, tuple[str, str]] = {}  # module → its file, and the digest of the compiled source
        self.folders: dict[Path, str] = {}  # folder → the package that holds the files this run loaded from it
        self.rewards: set[str] = set()  # modules that were loaded as rewards
        self.count = itertools.count(1)
        self.began = dict.fromkeys(sys.modules, time.time_ns())  # module → time of its import, or a little later

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if target is not None or fullname not in sys.modules:  # imported or reloaded; else only looked up
            self.began[fullname] = time.time_ns()
        top = fullname.partition(".")[0]
        if top not in self.packages:
            return None
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.origin is None:
            return spec
        if top.startswith(FOLDER) and spec.origin.endswith(NO_TEXT):
            raise NotPython(
                f"{spec.origin} is no .py file, and a plug-in that is given as a file imports no other neighbors: "
                "remove it, or give the plug-in's dotted name"
            )
        if type(spec.loader) is SourceFileLoader:
            spec.loader, spec.cached = Fresh(fullname, spec.origin), None
        return spec


FINDER = Finder()
sys.meta_path.insert(0, FINDER)


def import_module(name: str) -> ModuleType:
    """Import a module from outside rlkit by its dotted name."""
    if name.count(".") > DEEPEST:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    FINDER.packages.add(name.partition(".")[0])
    with _told(name, name):
        return importlib.import_module(name)


def begin() -> None:
    """Begin a new run: each file, and the neighbors that it imports, run again for it.

    Earlier modules stay in `sys.modules`, since their classes may still import, or be looked up, later on.
    """
    FINDER.folders.clear()


def load_file(path: Path, reward: bool = False) -> ModuleType:
    """Load a .py file from outside rlkit, which may import its neighbors: `from .helper import x`.

    A file loaded since `begin` is reused unless a loaded file of its folder has changed. reward: reuse it only once; a
    user who makes an environment by hand begins no run, and its rewards must still start with fresh state.
    """
    name = _name(path)
    if reward and name in FINDER.rewards:
        del FINDER.folders[path.parent]
        name = _name(path)
    if reward:
        FINDER.rewards.add(name)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=Fresh(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses look up their own module
    try:
        with _told(name, str(path)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _name(path: Path) -> str:
    """The module name by which neighbors import a file; a unique name where they cannot."""
    package = _folder_as_package(path.parent)
    name = f"{package}.{path.stem}"
    found = None if "." in path.stem else PathFinder.find_spec(name, [str(path.parent)])
    return name if found is not None and found.origin == str(path) else f"{package}.{path.name.replace('.', '/')}"


def changed(files: Collection[str]) -> str | None:
    """The first of these files that was changed since its import; None where none was."""
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        ours = top in FINDER.folders.values() if top.startswith(FOLDER) else top in FINDER.packages
        if ours and isinstance(module, ModuleType):
            file = vars(module).get("__file__")
            if isinstance(file, str) and file in files and _stale(name, file):
                return file
    return None


def _stale(name: str, file: str) -> bool:
    """Whether a file was changed since the module's import; for modules compiled by Python, judged by time."""
    try:
        if name in FINDER.ran:
            path, digest = FINDER.ran[name]
            return digest != _digest(Path(path).read_bytes())
        return name in FINDER.began and FINDER.began[name] < os.stat(file).st_mtime_ns < time.time_ns() + FUTURE
    except OSError:  # the file was removed
        return True


def _folder_as_package(folder: Path) -> str:
    """The name of a package that holds exactly the files of a folder, so that they can import each other.

    Each run has a new one, and so has a folder with a changed file: importers of the old one hold old classes.
    """
    importlib.invalidate_caches()  # a neighbor may have been written just now
    name = FINDER.folders.get(folder)
    if name is not None:
        inside = [module for module in sys.modules if module.startswith(f"{name}.")]
        if not any(_stale(module, FINDER.ran[module][0]) for module in inside if module in FINDER.ran):
            return name
    name = FINDER.folders[folder] = f"{FOLDER}{next(FINDER.count)}"
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = [str(folder)]
    FINDER.packages.add(name)
    return name


@contextmanager
def _told(name: str, given: str) -> Iterator[None]:
    """Report in one line why a module or one of its imports cannot be loaded, unless it raises an ordinary error.

    It imports from above its own package, is not Python, or exits the program. given: its name in the key.
    """
    try:
        yield
    except SyntaxError as error:
        if error.filename is None or not os.path.isfile(error.filename):  # the module compiled a text itself
            raise
        raise UserError(_not_imported(error.filename, error, error.filename, error.lineno)) from None
    except SystemExit as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(_not_imported(given, error, last.filename, last.lineno)) from None
    except ImportError as error:
        if (missing := _missing_neighbor(error)) is not None:
            raise UserError(missing) from None
        found = _importing(error, name.partition(".")[0]) if one_line(error).endswith(TOO_HIGH) else None
        if found is None:
            raise
        raise UserError(_from_above(name, *found)) from None


def _not_imported(given: str, error: BaseException, file: str, line: int | None) -> str:
    words = error.msg if isinstance(error, SyntaxError) else one_line(error)
    where = f"{Path(file).name}, line {line}" if line else Path(file).name
    return f"{given} cannot be imported: {type(error).__name__}: {words or 'nothing more'} ({where}); fix it"


def _missing_neighbor(error: ImportError) -> str | None:
    """What to do where a file imports a neighbor that is not there, as a copy of one of rlkit's files does."""
    package, _, name = (error.name or "").partition(".")
    found = re.match(r"cannot import name '(\w+)'", error.msg)
    name = name or (found[1] if found else "")
    if package not in FINDER.folders.values() or not name.isidentifier():
        return None
    folder = next(folder for folder, own in FINDER.folders.items() if own == package)
    told = f"a file in {folder} imports its neighbor {name}, which is not there: write {name}.py"
    for ours in ("rlkit.algorithms", "rlkit.envs"):
        if importlib.util.find_spec(f"{ours}.{name}") is not None:
            return f"{told}, or import it from {ours} where the file is a copy of rlkit's own"
    return told


def _importing(error: ImportError, package: str) -> tuple[str, Path] | None:
    """The module whose import failed, and its file; None where it belongs to another package."""
    frames = [frame.f_globals for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [each for each in frames if not str(each.get("__name__")).startswith("importlib.")]
    name, file = str(ours[-1].get("__name__")), ours[-1].get("__file__")
    return (name, Path(file)) if name.partition(".")[0] == package and isinstance(file, str) else None


def _from_above(name: str, importing: str, file: Path) -> str:
    """Advice: the dotted name that begins one folder higher, or where the enclosing packages end."""
    path, own = file.parent if file.name == "__init__.py" else file, name.split(".")
    depth, folders = importing.count(".") + 1, list(path.parents)
    if name.startswith(FOLDER):
        own[0] = folders[depth - 2].name
    told = f"{file} imports from above its own folder"
    if depth < len(folders):
        top = folders[depth]
        while (top / "__init__.py").is_file() and top != top.parent:
            top = top.parent
        dotted = [*folders[depth - 1].relative_to(top).parts, *own]
        if all(part.isidentifier() for part in dotted):
            return f"{told}: give its dotted name, {'.'.join(dotted)}, and start in {top}"
    return f"{told}, and no dotted name reaches there: move what it imports into {file.parent}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
