"""The pages name the checks that the doctor has."""

import re
from pathlib import Path

from rlkit.doctor import CHECKS

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| `(\w+)` \|", re.M)


def test_its_page_lists_every_check() -> None:
    first, _, _ = (DOCS / "doctor.md").read_text(encoding="utf-8").partition("Three more problems")
    assert set(ROW.findall(first)) == set(CHECKS)


def test_other_pages_name_checks_that_are_there() -> None:
    named = [
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"the doctor's `(\w+)`", page.read_text(encoding="utf-8"))
    ]
    assert named and not set(named) - set(CHECKS)
