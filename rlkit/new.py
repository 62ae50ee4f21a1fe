"""Start a plug-in of your own

python -m rlkit.new algo|env|reward|task NAME [out=FOLDER]

Writes NAME.py, under 60 lines that run at once, and its test, test_NAME.py,
into FOLDER (default: here). A task is a reward function with its rows,
NAME.jsonl. Nothing is overwritten.
"""

import sys
from collections.abc import Sequence

from rlkit.console import guarded
from rlkit.paths import home
from rlkit.terminal import say


def new(argv: list[str]) -> int:
    import importlib.util
    import re
    import shlex
    from pathlib import Path

    import rlkit
    from rlkit import scaffold
    from rlkit.errors import UserError
    from rlkit.settings import config, plugins, schema

    words = [word for word in argv if "=" not in word]
    if not argv or {"-h", "--help"} & set(words):
        say((__doc__ or "").rstrip())
        return 0
    if words and words[0] not in scaffold.COMMANDS:
        raise UserError(f"no kind '{words[0]}': {plugins.nearest(words[0], scaffold.COMMANDS)}")
    if len(words) != 2:
        raise UserError("write: python -m rlkit.new algo|env|reward|task NAME [out=FOLDER]")
    kind, name = words
    schema.once(argv)
    asked = config.build(scaffold.New, dict(word.split("=", 1) for word in argv if "=" in word), "new")
    path = scaffold.write(kind, name, home(asked.out))
    shown = path if path.is_absolute() or path.parent != Path(".") else f"./{path}"
    quoted, test = shlex.quote(str(shown)), shlex.quote(str(path.with_name(f"test_{name}.py")))
    meant = {"FILE": quoted, "ROWS": shlex.quote(str(path.with_suffix(".jsonl"))), "NAME": name}
    written = f"{shown}, its rows" if kind == "task" else f"{shown}"
    say(f"wrote {written} and its test\n\nrun it:")
    for line in scaffold.COMMANDS[kind]:  # each alone on its line, to be copied
        say("  " + re.sub("|".join(meant), lambda word: meant[word[0]], line))  # in one go: a path may hold these, too
    lacking = "" if importlib.util.find_spec("pytest") else " (after: pip install pytest)"
    say(f"test it{lacking}:\n  python -m pytest {test}")
    guide = Path(rlkit.__path__[0]).parent / "docs" / ("new_task.md" if kind == "task" else "your_own.md")
    if guide.is_file():  # in a checkout
        say(f"read:\n  {guide}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(new, argv)


if __name__ == "__main__":
    sys.exit(main())
