"""docs/turns.md does what it says: its files are written, its commands and its Python are run, in their order."""

import re
import shlex
from pathlib import Path

import pytest
from support.processes import run

from rlkit import outside
from rlkit.text.games import Playing

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "turns.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
INLINE = re.findall(r"^    (python -m .*)$", PAGE, re.MULTILINE)
COMMANDS = [text for kind, _, text in BLOCKS if kind == "console"] + INLINE
SMALL = ["evaluation_episodes=4", "validation_episodes=2", "iterations=1", "env.rows=2"]
FILES = {name: text for _, name, text in BLOCKS if name}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_runs(folder: Path, command: str) -> None:
    words = [word for word in shlex.split(command)[1:] if not word.startswith(("iterations", "env.rows"))]
    run(folder, *words, *SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for kind, name, text in BLOCKS if kind == "python" and not name])
def test_the_python_runs(folder: Path, text: str) -> None:
    run(folder, "-c", text)


def test_the_tool_and_the_game_of_the_page(folder: Path) -> None:
    units, pick = (outside.load_file(folder / name) for name in ("units.py", "pick.py"))
    assert units.meters("3 km") == "3000"
    game = Playing("pick", pick.Pick, [3])
    first, second = map(int, re.findall(r"\d", game.first[0]))
    reply = game.replies(lambda text: text, ["\n"])
    assert re.fullmatch(r"\d or \d\?", reply([0], [f"{max(first, second)}\nso"])[0])
    assert game.rewards == [[1.0]]
