"""What docs/concepts shows in Python is so, and its pictures are there, with words for those who cannot see them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
