"""The page of a run plays the parameters whose score it shows."""

from pathlib import Path

import pytest
from support.served import serve, serving

from rlkit import run
from rlkit.pages import choice


@pytest.mark.slow
def test_a_replay_is_of_the_parameters_that_the_run_measured(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=cartpole", "seed=1", "iterations=6", "evaluate_every=1", "validation_episodes=4"]
    words += ["evaluation_episodes=4", "measure=best", "algo.lr=0.05"]  # the third iteration is the best one
    assert run.main([*words, f"out={tmp_path / 'best'}"]) == 0
    with serve(str(tmp_path / "best")) as client:
        assert client.post("replay", greedy=True, episode=0)["iteration"] == 3


OWN = """
from rlkit.algorithms import grpo

Config = grpo.Config


class Own(grpo.GRPO):
    def loss(self, batch):
        loss, metrics = super().loss(batch)
        return loss, {**metrics, "clip_fraction": metrics["clip_fraction"].float()}


make = Own
"""


@pytest.mark.slow
def test_tokens_are_shown_where_an_own_loss_counts_its_clip_in_floats(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    words = [f"algo={tmp_path / 'own.py'}", "env=gsm8k", "iterations=1", "env.rows=2", "algo.group=4", "env.test=2"]
    assert run.main([*words, "env.validation=2", "env.max_tokens=8", f"out={tmp_path / 'run'}"]) == 0
    with serving(choice.site([str(tmp_path / "run")], trust=True)) as client:
        assert "clipped" in client.post("play")["known"]
