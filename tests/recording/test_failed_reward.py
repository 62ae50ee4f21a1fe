"""A reward that fails loses nothing: the iteration is repeated once it is repaired."""

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from support.resuming import Killed, differences

from rlkit import loop, run
from rlkit.errors import RewardFailed
from rlkit.recording import undo

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
@pytest.mark.slow
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


COUNTS = """
import torch
from rlkit.algorithms import grpo

Config = grpo.Config


class Arm:
    pulled = ()

    def state_dict(self):
        return {"pulled": self.pulled}

    def load_state_dict(self, state):
        self.pulled = state["pulled"]


class make(grpo.GRPO):
    saved = (*grpo.GRPO.saved, "level", "played", "seen", "arm")

    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.level, self.played, self.seen, self.arm = 0, [], torch.zeros(2), Arm()

    def rollout(self, env):
        self.level += 1
        self.played.append(self.level)
        self.seen += 1
        self.arm.pulled = (*self.arm.pulled, self.level)
        return super().rollout(env)

    def loss(self, batch):
        loss, metrics = super().loss(batch)
        return loss, metrics | {"level": self.seen * self.level * len(self.played) * len(self.arm.pulled)}
"""


@pytest.mark.slow
def test_what_an_algorithm_of_ones_own_counted_before_a_reward_failed_is_counted_once(tmp_path: Path) -> None:
    reward, own = tmp_path / "reward.py", tmp_path / "own.py"
    own.write_text(COUNTS, encoding="utf-8")
    words = [f"algo={own}", "algo.group=4", *WORDS, f"env.reward={reward}:mine"]
    reward.write_text(REWARD.format(fails=3))
    assert run.main([*words, f"out={tmp_path / 'a'}"]) == 2
    reward.write_text(REWARD.format(fails=-1))
    assert run.main([f"resume={tmp_path / 'a'}", "trust=changed"]) == 0
    assert [line["train/level"] for line in lines(tmp_path / "a")] == [x**4 for x in range(1, 7)]


def undone(change: Callable[[Any], None], **held: Any) -> Any:
    """An algorithm that acted, and whose reward failed then."""
    algo = SimpleNamespace(saved=tuple(held), **held, policy=SimpleNamespace())
    env = SimpleNamespace(kind="text", state_dict=dict, load_state_dict=dict)
    go_back = undo.noted(cast(Any, algo), cast(Any, env))
    change(algo)
    go_back()
    return algo


def test_what_has_become_something_else_is_what_it_was() -> None:
    algo = undone(lambda algo: vars(algo).update(best="a text", seen=None, count=1), best=None, seen=[1], count=0)
    assert (algo.best, algo.seen, algo.count) == (None, [1], 0)
    resized = undone(lambda algo: algo.seen.resize_(3), seen=torch.zeros(2))
    assert resized.seen.tolist() == [0, 0]


@pytest.mark.parametrize("kind", [torch.tensor, list, deque])
def test_two_names_that_became_one_object_are_two_again(kind: Callable[..., Any]) -> None:
    """As after `self.last = self.mean` in `rollout`: both were filled with the value of the last name."""
    mean, last = kind([1.0, 2.0]), kind([3.0, 4.0])
    algo = undone(lambda algo: vars(algo).update(last=algo.mean), mean=mean, last=last)
    assert algo.mean is mean and algo.last is last
    assert (list(mean), list(last)) == ([1, 2], [3, 4])


class Arm:
    """An object of one's own with a state."""

    def __init__(self, pulled: int) -> None:
        self.pulled = pulled

    def state_dict(self) -> dict[str, int]:
        return {"pulled": self.pulled}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.pulled = state["pulled"]


def test_an_object_of_ones_own_that_was_replaced_is_there_again() -> None:
    replaced = undone(lambda algo: vars(algo).update(arm=Arm(7)), arm=Arm(1))
    assert replaced.arm.pulled == 1
    swapped = undone(lambda algo: vars(algo).update(old=algo.new, new=algo.old), old=Arm(1), new=Arm(2))
    assert (swapped.old.pulled, swapped.new.pulled) == (1, 2)


@pytest.mark.parametrize("fails", [3, 5, 7])  # the first call measures the test split; then training and validation
@pytest.mark.slow
def test_a_validation_in_which_a_reward_failed_is_repeated(fails: int, tmp_path: Path) -> None:
    reward, rows = tmp_path / "reward.py", tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{n} and {n} is"}) + "\n" for n in range(60)))
    words = ["algo=grpo", "algo.group=4", "env=text", f"env.source={rows}", f"env.reward={reward}:mine", *WORDS[1:3]]
    words += ["iterations=3", "evaluate_every=1", "checkpoint_every=100", "measure=best", "policy.model=tiny"]
    reward.write_text(REWARD.format(fails=fails))
    assert run.main([*words, f"out={tmp_path / 'a'}"]) == 2
    assert len(lines(tmp_path / "a")) == fails // 2 and lines(tmp_path / "a")[-1]["doctor/reward_error"] == 1.0
    reward.write_text(REWARD.format(fails=1))
    for _ in range(2):  # it fails again, and nothing is lost
        assert run.main([f"resume={tmp_path / 'a'}", "trust=changed"]) == 2
    reward.write_text(REWARD.format(fails=-1))
    assert run.main([f"resume={tmp_path / 'a'}", "trust=changed"]) == 0
    assert run.main([*words, f"out={tmp_path / 'b'}"]) == 0
    assert [line["iteration"] for line in lines(tmp_path / "a")] == [1, 2, 3]
    assert differences(tmp_path / "a", tmp_path / "b") == []


@pytest.mark.slow
def test_a_kill_after_a_validation_was_repeated_writes_its_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of the first iteration, whose line is not missing where the validation failed before it."""
    reward = tmp_path / "reward.py"
    words = ["algo=grpo", "algo.group=4", *WORDS, f"env.reward={reward}:mine", "evaluate_every=1"]
    reward.write_text(REWARD.format(fails=-1))
    assert run.main([*words, f"out={tmp_path / 'b'}"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "validate", failing)
        assert run.main([*words, f"out={tmp_path / 'a'}"]) == 2
    capsys.readouterr()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop.Training, "keep", killed)
        run.main([f"resume={tmp_path / 'a'}", "trust=true"])
    assert [line["iteration"] for line in lines(tmp_path / "a")] == [1]
    assert run.main([f"resume={tmp_path / 'a'}", "trust=true"]) == 0
    assert "has no line up to" not in capsys.readouterr().err
    assert differences(tmp_path / "a", tmp_path / "b") == []


def test_a_run_that_is_made_longer_after_its_last_validation_failed_is_not_over_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["algo=dqn", "env=cartpole", "algo.warmup_steps=64", "env_steps=32", "evaluation_episodes=4"]
    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "validate", failing)
        assert run.main([*words, f"out={tmp_path / 'a'}"]) == 2
    assert run.main([f"resume={tmp_path / 'a'}", "env_steps=128"]) == 0
    assert not [line for line in lines(tmp_path / "a") if "doctor/no_update" in line]


def failing(*_: object) -> dict[str, float]:
    raise RewardFailed("out of order")


def killed(*_: object) -> None:
    raise Killed
