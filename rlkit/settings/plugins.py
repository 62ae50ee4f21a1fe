"""Find an algorithm or an environment by name; the name is the module, so there is no registry to keep.

A short name is the module `rlkit.algorithms.NAME`, that is the file `algorithms/NAME.py`; a dotted name is imported as
it is (`algo=my_pkg.sac`); a path ending in `.py` is loaded as a file (`algo=./my_algo.py`), which may import its
neighbors (`from .helper import ...`). A plug-in module has two names: `Config`, a frozen dataclass, and `make`.
"""

import ast
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from rlkit import outside
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.settings.synonyms import STANDS_IN
from rlkit.settings.synonyms import nearest as nearest  # as: others take it from here

if TYPE_CHECKING:
    from rlkit.api import PolicyFactory

Kind = Literal["algorithms", "envs"]
NOUN = {"algorithms": "algorithm", "envs": "environment"}
OURS = {"algorithms": ("name", "preset"), "envs": ("name",)}  # algo.KEY and env.KEY that are not for fields
ENTRY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # my_pkg.envs:MyEnv
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
        elif kind == "envs" and ENTRY.fullmatch(name):
            rule = f"a class of your own is given as env=gym env.entry={name}"
        elif kind == "algorithms" and (ours := STANDS_IN.get(name.lower())):
            rule = f"it is not here, and {ours}; there are: {', '.join(names(kind))}"
        elif "," in name:
            rule = "give one name; several are compared by python -m rlkit.compare"
        raise UserError(f"no {NOUN[kind]} '{name}': {rule}")
    config = getattr(module, "Config", None)
    if not (isinstance(config, type) and is_dataclass(config) and callable(getattr(module, "make", None))):
        raise UserError(
            f"'{name}' is not an {NOUN[kind]} plug-in: it must define a frozen dataclass `Config` and `{MAKE[kind]}`"
            f"{_entry(name, module) if kind == 'envs' else ''}"
        )
    _check_typed(name, config)
    if taken := [field.name for field in fields(config) if field.name in OURS[kind]]:
        raise UserError(
            f"'{name}' cannot have a field {taken[0]} in its Config: rlkit has a key of that name; give it another"
        )
    return module


def _check_typed(name: str, config: type) -> None:
    """Refuse what Python takes for no field, and so leaves at a parent's default without a word."""
    if "__dataclass_fields__" not in vars(config) and inspect.get_annotations(config):
        raise UserError(f"'{name}': its Config is not a dataclass itself: write @dataclass(frozen=True) above it")
    known = {field.name for field in fields(config)}
    for cls in config.__mro__:
        if untyped := sorted(known & vars(cls).keys() - inspect.get_annotations(cls).keys()):
            raise UserError(
                f"'{name}': its Config gives {untyped[0]} no type, so this value does nothing: write "
                f"{untyped[0]}: TYPE = VALUE"
            )


def _entry(name: str, module: ModuleType) -> str:
    """How a class in a module without a plug-in is given, if it is Gymnasium's or a game and has a name to import."""
    mine = [x for x in vars(module).values() if isinstance(x, type) and x.__module__ == module.__name__]
    found = [x for x in mine if callable(getattr(x, "reset", None)) and callable(getattr(x, "step", None))]
    folder, file = os.path.split(name) if name.endswith(".py") else ("", name)
    dotted = file.removesuffix(".py")
    if not found or not all(part.isidentifier() for part in dotted.split(".")):
        return ""
    cls = found[0].__name__
    if not any(base.__module__.startswith("gymnasium") for base in found[0].__mro__):
        game = f"env=game env.game={name}:{cls}"
        return f"; a game in words is given as {game}, and one in numbers inherits gymnasium.Env"
    start = f", started in the folder {folder}" if folder not in ("", ".") else ""
    return f"; its class {cls} is given as env=gym env.entry={dotted}:{cls}{start}"


def path_or_module(name: str) -> str:
    """What `load` takes a name for: the absolute path of a file, or the dotted name of a module."""
    return str(home(name).resolve()) if name.endswith(".py") else name


def is_short(name: str) -> bool:
    """Whether a name can only be one of rlkit's own plug-ins."""
    return not name.endswith(".py") and "." not in name


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
    return outside.load_file(path)


def network_class(kind: str) -> "type[PolicyFactory]":
    """The dataclass behind the `policy.` keys; text code is loaded for text only."""
    if kind == "text":
        from rlkit.language.network import LanguageNetwork

        return LanguageNetwork
    from rlkit.policies import Network

    return Network
