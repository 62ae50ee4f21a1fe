"""docs/text_tasks.md does what it says: its files are written, its commands and its Python are run, in their order."""

import json
import re
import shlex
from pathlib import Path

import pytest
from support.processes import run
from support.texts import installed

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "text_tasks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, _, text in BLOCKS if kind == "console" for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of the page are."""
    place = tmp_path_factory.mktemp("page")
    for _, name, text in BLOCKS:
        if name:
            (place / name).write_text(text, encoding="utf-8")
    return place


def test_every_block_is_read() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") // 2 and {kind for kind, _, _ in BLOCKS} == {"console", "python", "json"}
    assert len((next(text for _, name, text in BLOCKS if name == "people.jsonl")).splitlines()) == 3


@pytest.mark.slow
def test_its_python_holds(folder: Path) -> None:
    for kind, name, text in BLOCKS:
        if kind == "python" and not name:
            run(folder, "-c", text)


@pytest.mark.slow
def test_the_first_command_learns_at_the_first_try(folder: Path) -> None:
    run(folder, *shlex.split(COMMANDS[0])[1:], "out=first")
    lines = [json.loads(line) for line in (folder / "first" / "metrics.jsonl").read_text().splitlines()]
    returns = [line["rollout/return"] for line in lines]
    assert returns[0] < 0.2 and returns[-1] > 0.9
    assert [line["reward/names"] for line in lines] == returns, "the reward is logged by its name"


@pytest.mark.slow
@pytest.mark.parametrize("command", [line for line in COMMANDS[1:] if "rlkit.evaluate" not in line])
def test_the_other_commands_run(command: str, folder: Path) -> None:
    if "smollm2" in command and not installed():
        pytest.skip("the model's package is not installed")
    run(folder, *shlex.split(command)[1:])
    if "out=runs/people" in command:
        [after] = [line for line in COMMANDS if "rlkit.evaluate" in line]
        assert "calculates, greedy" in run(folder, *shlex.split(after)[1:])
        summary = json.loads((folder / "runs" / "people" / "summary.json").read_text())
        assert summary["evaluation"]["after"]["metric"] == "return"
        assert set(summary["evaluation"]["after"]["metrics"]["calculates"]) == {"mean", "low", "high", "episodes"}
