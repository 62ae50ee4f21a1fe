"""What docs/concepts shows in Python is so, and its pictures are there, with words for those who cannot see them."""

import re
from pathlib import Path

import pytest
from support.processes import run

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.stem: path for path in sorted((ROOT / "docs" / "concepts").glob("*.md"))}


@pytest.mark.parametrize("name", PAGES)
def test_its_picture_is_there_in_light_and_dark(name: str) -> None:
    [(words, target)] = re.findall(r"!\[(.*?)\]\((.*?)\)", PAGES[name].read_text(encoding="utf-8"))
    picture = (PAGES[name].parent / target).read_text(encoding="utf-8")
    assert len(words) > 80 and "<title>" in picture and "prefers-color-scheme: dark" in picture


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_its_python_runs(name: str, tmp_path: Path) -> None:
    script = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGES[name].read_text("utf-8"), re.DOTALL | re.MULTILINE))
    run(tmp_path, "-c", script)
