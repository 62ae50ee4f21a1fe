"""A gradient that the clip cuts down to nothing, and one that is only large."""

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
