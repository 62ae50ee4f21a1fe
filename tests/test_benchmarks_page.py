"""benchmarks/README.md names every script, and the tables that `everything.py` makes."""

import re
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PAGE = (BENCHMARKS / "README.md").read_text(encoding="utf-8")


def test_every_script_is_named() -> None:
    named = {path.name for path in BENCHMARKS.glob("*.py")} | {
        path.name for path in BENCHMARKS.iterdir() if path.is_dir()
    }
    assert not {name for name in named if f"`{name}" not in PAGE and not name.startswith((".", "__"))}


def test_every_table_is_named() -> None:
    tables = (BENCHMARKS / "control" / "everything.py").read_text(encoding="utf-8").partition("TABLES = (")[2]
    names = re.findall(r'"(\w+)"', tables.partition(")")[0])
    assert len(names) > 5 and all(f"`{name}.py`" in PAGE for name in names)
