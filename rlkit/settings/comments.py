"""The comments beside the fields of a dataclass, which explain its keys."""

import ast
import inspect
import io
import tokenize


def comments(cls: type) -> dict[str, str]:
    """The comment in the lines of each field in the source, a parent's where a child says nothing new."""
    found: dict[str, str] = {}
    for parent in reversed(cls.__mro__[:-1]):
        try:
            source = inspect.cleandoc("\n" + inspect.getsource(parent))
        except (OSError, TypeError):  # a class without a file, made in a session
            continue
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        notes = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if said := [notes[line] for line in lines if line in notes]:  # beside it, or inside of its brackets
                found[node.target.id] = " ".join(said)
    return found
