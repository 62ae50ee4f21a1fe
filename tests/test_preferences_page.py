"""docs/preferences.md does what it says: its files are written and its commands are run."""

import json
import re
import shlex
from pathlib import Path

import pytest
from support.processes import run
from support.texts import installed

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "preferences.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, _, text in BLOCKS if kind == "console" for line in text.splitlines()]
SMALL = ["evaluation_episodes=8", "validation_episodes=8", "threads=1", "out=run"]


def test_every_block_is_read() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") // 2 and len(COMMANDS) == 4
    assert all(name for kind, name, _ in BLOCKS if kind != "console")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(command: str, tmp_path: Path) -> None:
    if "smollm2" in command and not installed():
        pytest.skip("the model's package is not installed")
    for _, name, text in BLOCKS:
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    run(tmp_path, *shlex.split(command)[1:], *SMALL)
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert {"rollout/judge_pairs", "rollout/judge_both"} <= line.keys() or "env.judge" not in command
    assert line.get("rollout/judge_both", 0) == 0
