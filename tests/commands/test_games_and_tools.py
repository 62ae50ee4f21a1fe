"""Runs with a game or a tool of your own: what they leave, what they ask for, and that a changed file is noticed."""

import json
from pathlib import Path

import pytest
import yaml

from rlkit import evaluate, run
from rlkit.comparison import records

GAME = """
import random

class Echo:
    '''Say the digit.'''

    def __init__(self, length=2):
        self.length = length

    def reset(self, seed):
        self.luck, self.turn = random.Random(seed), 0
        return self.ask()

    def ask(self):
        self.digit = str(self.luck.randint(1, 9))
        return f"Tom has {self.digit} books. How many books does Tom have?\\n####"

    def step(self, text):
        self.turn += 1
        right = text.strip() == self.digit
        return self.ask(), float(right), self.turn == self.length
"""
TOOL = "def twice(text):\n    return text + text\n"
SHORT = ["iterations=2", "threads=1", "evaluation_episodes=4", "validation_episodes=2", "env.rows=2", "algo.group=2"]
KEYS = {
    "game": ["env=game", "env.game=./mine.py:Echo", "env.kwargs.length=3", "env.max_tokens=12", "env.turn_tokens=3"],
    "tool": ["env=gsm8k", "env.tool=./mine.py:twice", "env.train=8", "env.test=4", "env.validation=2"],
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(GAME + TOOL)
    return tmp_path


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.slow
def test_a_run_leaves_dialogs_and_counts_and_asks_for_trust(
    here: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["algo=grpo", *KEYS[kind], *SHORT, "out=r"]) == 0
    key = {"game": "game", "tool": "tool"}[kind]
    held = yaml.safe_load((here / "r" / "config.yaml").read_text())
    assert held["env"][key].startswith(str(here / "mine.py")) and str(here / "mine.py") in held["marks"]
    lines = [json.loads(line) for line in (here / "r" / "metrics.jsonl").read_text().splitlines()]
    count = {"game": "turns", "tool": "tool_calls"}[kind]
    assert f"rollout/{count}" in lines[0] and f"metric/{count}" in lines[-1]
    texts = [json.loads(line) for line in (here / "r" / "completions.jsonl").read_text().splitlines()]
    summary = json.loads((here / "r" / "summary.json").read_text())
    assert count in summary["evaluation"]["after"]["metrics"] and summary["alarms"] == []
    assert summary["kind"] == "text" and records.read(here / "r").kind == "text"
    if kind == "game":
        assert lines[0]["rollout/turns"] == 3 and summary["evaluation"]["after"]["metric"] == "return"
        assert all(text["completion"].count("How many books") == 2 for text in texts)
        assert held["env"]["stop"] == ["\n"] and held["env"]["prompt"] == "{question}\n"
    capsys.readouterr()
    for ask in (lambda: run.main(["resume=r"]), lambda: evaluate.main(["r"])):
        assert ask() == 2
        assert f"r would run code from outside rlkit: env.{key}=" in capsys.readouterr().err
    (here / "mine.py").write_text(GAME + TOOL + "\n")
    assert run.main(["resume=r", "trust=true"]) == 2
    assert "mine.py has changed since the run r began" in capsys.readouterr().err
    assert evaluate.main(["r", "trust=changed", "episodes=2"]) == 0
    if kind == "game":
        out = capsys.readouterr().out
        assert "return on test, 2 episodes" in out


@pytest.mark.slow
def test_a_game_that_is_mended_goes_on_where_it_failed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = GAME.replace("right = ", "right = self.luck.random() < 0.9 or 1 / 0 or ")
    Path("mine.py").write_text(broken)
    assert run.main(["algo=grpo", *KEYS["game"], *SHORT, "out=r"]) == 2
    said = capsys.readouterr().err
    assert "raised ZeroDivisionError: division by zero (mine.py, line" in said and "trust=changed" in said
    Path("mine.py").write_text(GAME)
    assert run.main(["resume=r", "trust=changed"]) == 0


@pytest.mark.slow
def test_the_first_screen_says_what_the_optimum_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algo=ppo", "env=guess", "env.numbers=8", "iterations=1", "env.rows=2", "evaluation_episodes=2"]
    assert run.main([*words, "validation_episodes=2", "threads=1", "out=r"]) == 0
    assert "binary search wins 0.875" in capsys.readouterr().out
    reference = json.loads((here / "r" / "summary.json").read_text())["reference"]
    assert reference["high"] == 0.875 and reference["high_is"] == "binary search"


@pytest.mark.parametrize("tool", ["", "calculator"])
def test_tool_seconds_needs_a_tool_of_ones_own(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["algo=grpo", "env=gsm8k", f"env.tool={tool}", "env.tool_seconds=1"]) == 2
    said = f"env.tool_seconds=1 does nothing with env.tool={tool}: it needs env.tool other than calculator; give that"
    assert said in capsys.readouterr().err
