"""docs/new_task.md does what it says: its commands and its Python are run, in their order, in one folder."""

import json
import re
import shlex
from pathlib import Path

import pytest
from support.processes import run

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "new_task.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHORT = {"iterations=10 seed=0,1,2": "iterations=2 seed=0,1 evaluations=1", "iterations=10 out": "iterations=4 out"}


def shortened(command: str) -> list[str]:
    for long, short in SHORT.items():
        command = command.replace(long, short)
    return shlex.split(command)[1:]


def test_every_block_is_read_and_what_is_shortened_stands_there() -> None:
    assert len(BLOCKS) == PAGE.count("\n```") // 2 and {kind for kind, _ in BLOCKS} == {"console", "python"}
    assert all(PAGE.count(long) == 1 for long in SHORT)


@pytest.mark.slow
def test_the_page_works_from_top_to_bottom(tmp_path: Path) -> None:
    for kind, text in BLOCKS:
        if kind == "python":
            run(tmp_path, "-c", text)
        else:
            for command in text.splitlines():
                run(tmp_path, *shortened(command))
    lines = [json.loads(line) for line in (tmp_path / "runs" / "my_task" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["rollout/return"] < 0.4 and lines[-1]["rollout/return"] > 0.9
    results = json.loads((tmp_path / "comparisons" / "my_task" / "results.json").read_text())
    assert {entry["algo"] for entry in results["runs"]} == {"grpo", "ppo", "dpo"} and len(results["runs"]) == 6
