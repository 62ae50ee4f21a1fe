"""A run folder that an earlier version wrote goes on, to the bits that this came to."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.resuming import cut, differences

from rlkit import memory, run
from rlkit.recording import checkpoint
from rlkit.settings import config

DATA = Path(__file__).resolve().parents[1] / "data" / "sarsa-0.3.0"


@pytest.mark.slow
def test_a_run_of_0_3_0_continues_exactly(tmp_path: Path) -> None:
    """The folder was cut off at iteration 400; 0.3.0 continued it to 900, and this is the table that it had then."""
    expected = load_file(DATA / "after-900.safetensors")
    folder = tmp_path / "run"
    shutil.copytree(DATA, folder)
    assert run.main([f"resume={folder}", "iterations=900"]) == 0
    found = checkpoint.load(folder)
    assert found["progress"]["iteration"] == 900
    before = checkpoint.load(DATA)["parts"]["policy"]
    assert not torch.equal(before["q.weight"], expected["q.weight"])
    for name, x in expected.items():
        assert torch.equal(found["parts"]["policy"][name], x), name


@pytest.mark.parametrize(
    "algo", ["algo=sarsa algo.steps=3", pytest.param("algo=ppo algo.horizon=16", marks=pytest.mark.slow)]
)
def test_a_run_from_before_action_masks_goes_on_without(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without gradients by hand, which draw other actions, and without a bound of the sampler's weight."""
    words = [*algo.split(), "env=gym", "env.id=Taxi-v4", "env.rows=2", "env.step_limit=20", "evaluation_episodes=2"]
    words += ["env.action_masks=false", *(["policy.fast=false"] if "ppo" in algo else [])]
    words += ["checkpoint_every=1", "iterations=4"]
    whole, old = tmp_path / "whole", tmp_path / "old"
    assert run.main([*words, f"out={whole}"]) == 0
    cut(words, old, monkeypatch)
    path, later = old / "config.yaml", ("action_masks:", "fast:", "sampler_cap:", "share:", "encoder:")
    lines = [line for line in path.read_text().splitlines() if not line.strip().startswith(later)]
    path.write_text("\n".join(lines) + "\n")
    assert run.main([f"resume={old}"]) == 0
    held = config.from_folder(old)
    assert not held.env["action_masks"] and not held.policy.get("fast") and held.algo.get("sampler_cap") is None
    one, other = (checkpoint.load(folder)["parts"]["policy"] for folder in (whole, old))
    assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_run_goes_on_with_a_replay_that_is_smaller_than_one_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one is refused; 0.5 trained it."""
    words = ["algo=dqn", "env=cartpole", "env.rows=2", "algo.steps=4", "algo.capacity=6", "algo.warmup_steps=4"]
    words += ["algo.batch_size=4", "policy.hidden=8", "iterations=6", "checkpoint_every=1", "evaluation_episodes=2"]
    whole, old = tmp_path / "whole", tmp_path / "old"
    with monkeypatch.context() as patched:
        patched.setattr(memory, "check_algorithm", lambda algo: None)
        assert run.main([*words, f"out={whole}"]) == 0
        cut(words, old, monkeypatch)
    assert run.main([f"resume={old}"]) == 0
    assert differences(whole, old) == []


def test_a_score_that_had_another_name_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """rlkit 0.5 called that of a reward model a return where the rewards were the user's own."""
    words = ["algo=q_learning", "env=gridworld", "iterations=2", "evaluation_episodes=2", "validation_episodes=2"]
    assert run.main([*words, f"out={tmp_path / 'run'}"]) == 0
    path = tmp_path / "run" / "before.json"
    path.write_text(path.read_text().replace('"metric": "return"', '"metric": "accuracy"'))
    capsys.readouterr()
    assert run.main([f"resume={tmp_path / 'run'}", "iterations=4"]) == 0
    told = "the score was called accuracy; from here on, eval/accuracy in its files is eval/return"
    assert told in capsys.readouterr().err
