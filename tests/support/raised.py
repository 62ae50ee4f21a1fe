"""Every error that the sources raise for the user, and the tests that bring about those that docs/errors.md cannot."""

import ast
import json
from collections.abc import Iterator
from functools import cache

from support.sources import ROOT

ERRORS = {"UserError", "Exhausted", "RewardFailed", "EngineFailed", "Refused", "Diverged"}

# Errors that no folder of files can bring about, and the test that brings each about.
ELSEWHERE: dict[str, str] = json.loads((ROOT / "tests/data/errors_elsewhere.json").read_text(encoding="utf-8"))


@cache
def raised() -> list[tuple[str, list[str]]]:
    """Where the sources make an error for the user, and the pieces of it that are always the same."""
    found = []
    for path in sorted(path for name in ("rlkit", "algorithms", "envs") for path in (ROOT / name).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ERRORS):
                continue
            text: ast.AST = node.args[0]
            if isinstance(text, ast.Call) and isinstance(text.func, ast.Name):  # told by a function of the same file
                text = next(x for x in ast.walk(functions[text.func.id]) if isinstance(x, ast.Return))
            found.append((f"{path.relative_to(ROOT)}:{node.lineno}", list(pieces(text))))
    return found


def pieces(text: ast.AST) -> Iterator[str]:
    """The literal parts of a text, without those inside of its {}."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        yield text.value
    for child in [] if isinstance(text, ast.FormattedValue) else ast.iter_child_nodes(text):
        yield from pieces(child)
