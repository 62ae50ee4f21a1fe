"""The sources of the project as trees: what each module imports and calls, and the room that it is in."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PATHS = [path for folder in ("rlkit", "algorithms", "envs") for path in sorted((ROOT / folder).rglob("*.py"))]


def dotted(path: Path) -> str:
    """The name that a file is imported by: algorithms/ppo.py is rlkit.algorithms.ppo."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "rlkit" else ("rlkit", *parts)).removesuffix(".__init__")


SOURCES = {dotted(path): path for path in PATHS}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}

# A room is a folder of rlkit/, or one of FILES beside the folders. The ground is every other file beside the folders.
CONTRACTS = "api"
FILES = {
    "held",
    "unsaved",
    "finite",
    "meter",
    "progress",
    "gradients",
    "loop",
    "session",
    "telling",
    "evaluation",
    "against",
    "interop",
    "scaffold",
}


@cache
def imports(name: str, top_level: bool = False) -> list[str]:
    """Absolute names of all that a module imports: `rlkit.x` where it says `from rlkit import x` or `from .x`."""
    return list(imported(name, top_level))


def imported(name: str, top_level: bool) -> Iterator[str]:
    tree = TREES[name]
    package = name.split(".") if SOURCES[name].name == "__init__.py" else name.split(".")[:-1]
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def modules(name: str, top_level: bool = False) -> set[str]:
    """The modules of the project that a module imports; the package `rlkit` itself holds names only."""
    found = set()
    for full in imports(name, top_level):
        module = full if full in SOURCES else full.rpartition(".")[0]
        if module.startswith("rlkit.") and module != name:
            found.add(module)
    return found


def room(name: str) -> str:
    """The room that a module is in."""
    first = name.split(".")[1] if "." in name else CONTRACTS
    if first in COMMANDS:
        return "commands"
    inside = SOURCES.get(f"rlkit.{first}", ROOT).name == "__init__.py"
    return first if inside or first in FILES or first == CONTRACTS else "ground"


def is_command(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree.body)


COMMANDS = {name.split(".")[1] for name in SOURCES if name.count(".") == 1 and is_command(TREES[name])} | {"__main__"}


@cache
def calls(name: str) -> list[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called."""
    return [(ast.unparse(node.func), node) for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
