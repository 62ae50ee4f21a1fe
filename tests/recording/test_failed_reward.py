"""A reward that fails loses nothing: the iteration is repeated once it is repaired."""

import json
from pathlib import Path

import pytest
from support.resuming import differences

from rlkit import run

REWARD = """
from pathlib import Path

calls = 0


def mine(prompts, completions, **columns):
    global calls
    calls += 1
    if calls == {fails}:
        raise ValueError("out of order")
    return [len(set(text)) / 10 for text in completions]
"""
WORDS = ["env=gsm8k", "env.rows=4", "env.max_tokens=8", "iterations=6", "checkpoint_every=100", "evaluation_episodes=4"]


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "algo",
    [
        ["algo=grpo", "algo.group=4", "env.curriculum=success"],
        pytest.param(["algo=ppo", "algo.kl_coef=0.1"], marks=pytest.mark.slow),
    ],
)
def test_the_iteration_in_which_a_reward_failed_is_repeated(algo: list[str], tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    words = [*algo, *WORDS, f"env.reward={reward}:mine"]
    reward.write_text(REWARD.format(fails=5))
    assert run.main([*words, f"out={tmp_path / 'a'}"]) == 2
    assert lines(tmp_path / "a")[-1]["doctor/reward_error"] == 1.0
    reward.write_text(REWARD.format(fails=-1))
    assert run.main([f"resume={tmp_path / 'a'}", "trust=changed"]) == 0
    assert run.main([*words, f"out={tmp_path / 'b'}"]) == 0
    assert [line["iteration"] for line in lines(tmp_path / "a")] == [1, 2, 3, 4, 5, 6]
    assert differences(tmp_path / "a", tmp_path / "b") == []
