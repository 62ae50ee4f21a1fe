"""A target network that is never copied, and the loss that comes to nothing because of it."""

import json
from pathlib import Path

from support.sick import alarms, name

from rlkit import run
from rlkit.doctor import Doctor

DQN = ["algo=dqn", "env=cartpole", "algo.tau=none", "algo.warmup_steps=100", "env.rows=4", "algo.steps=4"]
DQN += ["algo.updates=1", "algo.n_step=1", "algo.batch_size=8"]


def test_a_target_that_was_never_copied_is_named_until_it_is(tmp_path: Path) -> None:
    keys = [*DQN, "env_steps=320", "algo.sync_every=20"]
    assert "lower algo.sync_every, set algo.tau" in alarms(tmp_path / "r", *keys)["target"]
    assert run.main([f"resume={tmp_path / 'r'}", "env_steps=640"]) == 0
    left = json.loads((tmp_path / "r" / "summary.json").read_text())["alarms"]
    assert "target" not in [alarm["name"] for alarm in left]
    assert "target" not in alarms(tmp_path / "soft", *DQN[:2], *DQN[3:], "env_steps=320", "algo.tau=0.01")
    assert list(alarms(tmp_path / "none", *keys, "algo.warmup_steps=400")) == ["no_update"]


def test_a_loss_that_came_to_nothing_needs_no_larger_rate() -> None:
    small = {"train/update_ratio": 1e-9, "train/grad_norm": 1e-6, "progress": 0.5}
    looks = [small | {"train/loss": loss} for loss in (0.1, 1e-9, 1e-9, 1e-9, 1e-9)]
    assert name(Doctor(), looks) == []
    assert name(Doctor(), [small | {"train/loss": loss} for loss in (0.1, 0.05, 0.05)]) == ["lr_small"]
