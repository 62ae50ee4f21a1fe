"""docs/groups.md does what it says: each comparison is put together as it is written, and none is run."""

import re
import shlex
from pathlib import Path

import pytest

from rlkit.comparison import plan

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "groups.md").read_text(encoding="utf-8")
WORDS = dict(re.findall(r'\b([A-Z])="([^"]*)"', PAGE))
COMMANDS = re.findall(r"^    python -m rlkit\.compare ((?:.*\\\n)*.*)$", PAGE, re.MULTILINE)


def words(command: str) -> list[str]:
    for name, text in WORDS.items():
        command = command.replace(f"${name}", text)
    return shlex.split(command.replace("\\\n", " "), comments=True)


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == PAGE.count("-m rlkit.compare") and set(WORDS) == set(re.findall(r"\$([A-Z])\b", PAGE))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[:60])
def test_each_command_is_a_comparison(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "minigrid" in command:
        pytest.importorskip("minigrid")
    if "lunarlander" in command:
        pytest.importorskip("Box2D")
    monkeypatch.chdir(tmp_path)
    jobs, _ = plan.plan(plan.parse(words(command)))
    seeds = re.search(r"seeds=(\d+)", " ".join(words(command)))
    assert seeds and len({job.seed for job in jobs}) == int(seeds[1])
