"""A gradient that the clip cuts down to nothing, one that is only large, and steps that are too large."""

from pathlib import Path

import pytest
from support.sick import alarms, lines, name, world

from rlkit.doctor import Doctor


@pytest.mark.slow
def test_a_value_loss_beside_which_the_policy_stands_still_is_named(tmp_path: Path) -> None:
    keys = ["algo=ppo", world(tmp_path, reward="1e5 * action"), "iterations=4"]
    found = alarms(tmp_path / "r", *keys)
    assert list(found) == ["gradient"] and "algo.normalize_reward" in found["gradient"]
    assert max(line["train/kl"] for line in lines(tmp_path / "r")) < 1e-7
    assert alarms(tmp_path / "s", *keys, "algo.normalize_reward=true") == {}
    assert min(line["train/kl"] for line in lines(tmp_path / "s")) > 1e-5


def test_a_gradient_that_is_cut_down_is_named_where_the_policy_stands_still() -> None:
    still = {"train/grad_norm": 6e3, "limit": 0.5, "train/kl": 1e-8}
    assert name(Doctor(), [still] * 3) == ["gradient"]
    assert name(Doctor(), [still, still, still | {"train/grad_norm": 450.0}] * 5) == []
    assert name(Doctor(), [still | {"train/kl": 1e-4}] * 5) == [], "it moves"
    assert name(Doctor(), [still | {"train/kl": 0.0}] * 5) == [], "of a single update nothing is known"
    assert name(Doctor(), [still | {"limit": float("inf")}] * 5) == [], "nothing is cut down"


def test_a_step_is_too_large_beside_weights_of_some_size_alone() -> None:
    large = {"train/update_ratio": 0.7}
    assert name(Doctor(), [large | {"moved": 8.0}]) == ["lr_large"]
    assert name(Doctor(), [large | {"moved": 0.1}]) == [], "these weights are nearly 0"


def test_a_linear_policy_begins_near_zero_and_its_rate_is_not_too_large(tmp_path: Path) -> None:
    keys = ["algo=grpo", "env=cartpole", "policy.hidden=", "iterations=2", "env.rows=2"]
    assert "lr_large" not in alarms(tmp_path / "r", *keys)
    assert lines(tmp_path / "r")[0]["train/update_ratio"] > 0.1, "a first step is as long as the weights are"
    assert "lr_large" in alarms(tmp_path / "s", *keys, "algo.lr=1")
