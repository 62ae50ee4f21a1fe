"""docs/reasoning.md does what it says: its file is written, its commands and its Python are run."""

import re
import shlex
from pathlib import Path

import pytest
from support.processes import run
from support.texts import installed, reasoning_installed

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reasoning.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [text.strip() for kind, _, text in BLOCKS if kind == "console" and text.startswith("python")]


def written(folder: Path, *words: str) -> str:
    for _, name, text in BLOCKS:
        if name:
            (folder / name).write_text(text, encoding="utf-8")
    return run(folder, *words)


def test_every_block_is_read() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") // 2 and len(COMMANDS) == 5


@pytest.mark.slow
@pytest.mark.parametrize("text", [text for kind, name, text in BLOCKS if kind == "python"])
def test_the_python_runs(text: str, tmp_path: Path) -> None:
    written(tmp_path, "-c", text)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_runs(command: str, tmp_path: Path) -> None:
    if ("env=reasoning" in command and not reasoning_installed()) or ("smollm2" in command and not installed()):
        pytest.skip("a package is not installed")
    written(tmp_path, *shlex.split(command)[1:])
