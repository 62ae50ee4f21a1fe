"""Documents, comments, docstrings and messages are written in plain words: a linter reads them all."""

from pathlib import Path

import pytest
from support.prose import complaints, files


def test_the_linter_finds_nothing() -> None:
    assert [complaint for path in files() for complaint in complaints(path)] == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", "The file\nis no run folder.\n", [(2, "is not a")]),
        ("a.md", "There is no run folder, and it is no longer here.\n", []),
        ("a.md", "Text `is no code`.\n\n    this is no text\n\n```\nmend\n```\nThey mend it.\n", [(8, "fix")]),
        ("a.md", "A behaviour\n\nand the the end", [(1, "behavior"), (3, "repeated")]),
        ("a.py", "x = 1  # normalised\n", [(1, "normalized")]),
        ("a.py", 'def f(shall):\n    """One.\n\n    It shall be."""\n', [(4, "must")]),
        ("a.py", 'raise E(f"{x} is no file: {y} is read")\n', [(1, "is not a")]),
        ("a.py", 'key = "mend"\n', []),
    ],
)
def test_what_the_linter_finds_stands_on_its_line(
    tmp_path: Path, name: str, text: str, found: list[tuple[int, str]]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    seen = complaints(path)
    assert len(seen) == len(found)
    for complaint, (line, word) in zip(seen, found, strict=True):
        assert f"{name}:{line}: " in complaint and word in complaint
