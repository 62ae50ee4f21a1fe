"""Writes the files of a new plug-in from templates."""

import ast
import builtins
import importlib.util
import keyword
import os
import sys
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rlkit.errors import UserError
from rlkit.recording.files import reason
from rlkit.settings import plugins

TASK = "env=text env.source=ROWS env.reward=FILE:NAME policy.model=tiny"
COMMANDS = {  # commands for each kind; FILE, ROWS and NAME stand for the written files
    "algo": (
        "python -m rlkit.run algo=FILE env=cartpole env_steps=40_000",
        "python -m rlkit.run algo=FILE env=gsm8k iterations=12 env.rows=128 algo.lr=3e-4 algo.minibatches=1",
        "python -m rlkit.compare algo=FILE,reinforce env=cartpole seed=0,1,2",
    ),
    "env": ("python -m rlkit.run env=FILE algo=ppo algo.lr=3e-3 env_steps=16_000",),
    "reward": ("python -m rlkit.run env=gsm8k env.reward=correct,FILE:NAME algo=grpo",),
    "task": (
        f"python -m rlkit.run algo=grpo {TASK} iterations=10",
        f"python -m rlkit.compare algo=grpo,ppo,dpo {TASK} iterations=10 seed=0,1,2",
    ),
}
FUNCTIONS = ("reward", "task")  # kinds whose file defines a function with its name


@dataclass(frozen=True)
class New:
    """The keys of the command line."""

    out: str = "."  # folder for the files; created if missing


def check_name(kind: str, name: str) -> None:
    """Refuse a name that Python, rlkit or the template of a kind could take for something else."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith(("_", "test_")) or name == "conftest":
        raise UserError(f"'{name}' cannot be the name of a module: use letters, digits and _, as in my_algo")
    if (read := unicodedata.normalize("NFKC", name)) != name:
        raise UserError(f"'{name}' cannot be the name of a module: Python reads it as {read}; give that")
    if kind in FUNCTIONS and (hasattr(builtins, name) or name in _names(_template(f"{kind}.py")) - {f"my_{kind}"}):
        raise UserError(f"'{name}' is a name that {name}.py uses itself, or Python: choose another, such as my_{name}")
    for plugin, noun in plugins.NOUN.items():
        if name in plugins.names(plugin):  # type: ignore[arg-type]
            raise UserError(f"'{name}' is an {noun} of rlkit: choose another name, such as my_{name}")
    spec = None if name in sys.builtin_module_names else importlib.util.find_spec(name)
    if name in sys.stdlib_module_names or (spec is not None and spec.origin is not None):
        raise UserError(f"'{name}' is a module already, which {name}.py would hide: choose another, such as my_{name}")


def write(kind: str, name: str, folder: Path) -> Path:
    """Write NAME.py and test_NAME.py from the templates of a kind, and NAME.jsonl for a task; return NAME.py."""
    paths = {f"{kind}.py": folder / f"{name}.py", f"test_{kind}.py": folder / f"test_{name}.py"}
    if kind == "task":
        paths["task.jsonl"] = folder / f"{name}.jsonl"
    for path in paths.values():
        if os.path.lexists(path):  # pathlib's raises where a name is too long; a dangling link counts
            raise UserError(f"{path} exists and is not overwritten: choose another name, or out=FOLDER")
    check_name(kind, name)  # after the loop: an existing file is itself a module of that name
    texts = {path: _template(part).replace(f"my_{kind}", name) for part, path in paths.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_all(texts)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {reason(error)}; give another folder with out=FOLDER") from None
    return paths[f"{kind}.py"]


def _write_all(texts: Mapping[Path, str]) -> None:
    """Write new files; if one cannot be written, none is left."""
    begun: list[Path] = []
    try:
        for path, text in texts.items():
            with open(path, "x", encoding="utf-8") as file:
                begun.append(path)
                file.write(text)
    except BaseException:  # also Ctrl-C
        for path in begun:
            with suppress(OSError):
                path.unlink()
        raise


def _template(part: str) -> str:
    return (resources.files("rlkit") / "templates" / f"{part}.txt").read_text(encoding="utf-8")


def _names(text: str) -> set[str]:
    """Every name in a program."""
    nodes = list(ast.walk(ast.parse(text)))
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return found | {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.alias)}
