"""Find an algorithm or an environment by name; the name is the module, so there is no registry to keep.

A short name is the module `rlkit.algorithms.NAME`, that is the file `algorithms/NAME.py`; a dotted name is imported as
it is (`algo=my_pkg.sac`); a path ending in `.py` is loaded as a file (`algo=./my_algo.py`), which may import its
neighbours (`from .helper import ...`). A plug-in module has two names: `Config`, a frozen dataclass, and `make`.
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from rlkit import outside
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.settings.synonyms import STANDS_IN
from rlkit.settings.synonyms import nearest as nearest  # as: others take it from here

Kind = Literal["algorithms", "envs"]
NOUN = {"algorithms": "algorithm", "envs": "environment"}
_executed: dict[str, bytes] = {}  # module → the text of its file when it was run: an edited one is run again
GYMNASIUM = re.compile(r"([\w.-]+[:/])*[\w.-]+-v\d+")  # Acrobot-v1, ALE/Pong-v5, my_pkg:My-v0
MAKE = {"algorithms": "make(config, env, ...)", "envs": "make(config, seed, device)"}


def names(kind: Kind) -> list[str]:
    """List the short names of a kind, in alphabetical order."""
    package = importlib.import_module(f"rlkit.{kind}")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_"))


def load(kind: Kind, name: str) -> ModuleType:
    """Import the plug-in that a name stands for. An error inside the plug-in's own code is raised as it is."""
    if name.endswith(".py"):
        module = _from_file(kind, home(name))
    elif name in names(kind):
        module = importlib.import_module(f"rlkit.{kind}.{name}")
    elif "." in name and all(part.isidentifier() for part in name.split(".")):
        module = _from_dotted(kind, name)
    else:
        rule = f"{nearest(name, names(kind))}; your own: a dotted module name or a path ending in .py"
        if name.isidentifier() and os.path.isfile(f"{name}.py"):
            rule = f"did you mean ./{name}.py? A short name is one of: {', '.join(names(kind))}"
        elif kind == "envs" and GYMNASIUM.fullmatch(name):
            rule = f"a Gymnasium id is given as env=gym env.id={name}; {nearest(name.rpartition('-')[0], names(kind))}"
        elif kind == "algorithms" and (ours := STANDS_IN.get(name.lower())):
            rule = f"it is not here, and {ours}; there are: {', '.join(names(kind))}"
        elif "," in name:
            rule = "give one name; several are compared by python -m rlkit.compare"
        raise UserError(f"no {NOUN[kind]} '{name}': {rule}")
    config = getattr(module, "Config", None)
    if not (isinstance(config, type) and is_dataclass(config) and callable(getattr(module, "make", None))):
        raise UserError(
            f"'{name}' is no {NOUN[kind]} plug-in: it must define a frozen dataclass `Config` and `{MAKE[kind]}`"
        )
    return module


def path_or_module(name: str) -> str:
    """What `load` takes a name for: the absolute path of a file, or the dotted name of a module."""
    return str(home(name).resolve()) if name.endswith(".py") else name


def short(name: str) -> str:
    """The part of a plug-in's name that fits into a folder's name: `my_pkg.sac` and `./sac.py` are both `sac`."""
    return Path(name).stem if name.endswith(".py") else name.rpartition(".")[2]


def summary(kind: Kind, name: str) -> str:
    """The first line of a plug-in's docstring; a built-in one is not imported for it."""
    spec = importlib.util.find_spec(f"rlkit.{kind}.{name}") if name in names(kind) else None
    if spec is not None and spec.origin is not None:
        text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    else:
        text = load(kind, name).__doc__
    return (text or "").strip().partition("\n")[0]


def _from_dotted(kind: Kind, name: str) -> ModuleType:
    try:
        return outside.import_module(name)
    except ModuleNotFoundError as error:
        # Only the name itself, or a package on the way to it, can be the user's mistake.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UserError(
            f"no {NOUN[kind]} '{name}': there is no module '{error.name}' here (start in the folder that holds it, or "
            f"install it); {nearest(name, names(kind))}"
        ) from None


def _from_file(kind: Kind, path: Path) -> ModuleType:
    path = path.resolve()
    if not os.path.isfile(path):
        there = ", ".join(names(kind))
        raise UserError(f"no {NOUN[kind]} file {path}: give a path to an existing .py file, or a name: {there}")
    name = f"{_folder_as_package(path.parent)}.{path.stem.replace('.', '_')}"
    text = path.read_bytes()
    if name in sys.modules and _executed.get(name) == text:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=outside.Fresh(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses look their own module up
    try:
        spec.loader.exec_module(module)
        _executed[name] = text
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ImportError) and "beyond top-level package" in str(error):
            raise UserError(_use_the_dotted_name(path)) from None
        raise
    return module


def _folder_as_package(folder: Path) -> str:
    """The name of a package that holds the files of a folder and nothing else, so that they can import each other."""
    name = f"rlkit_folder_{hashlib.blake2b(bytes(folder), digest_size=8).hexdigest()}"
    package = sys.modules.setdefault(name, ModuleType(name))
    package.__path__ = [str(folder)]
    outside.compiled(name)
    return name


def _use_the_dotted_name(path: Path) -> str:
    top = path.parent.parent.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    dotted = ".".join(path.relative_to(top).with_suffix("").parts)
    return f"{path} imports from above its own folder: give its dotted name, {dotted}, and start in {top}"
