"""The page of a run plays the parameters whose score it shows."""

from pathlib import Path

import pytest
from support.served import serve

from rlkit import run


@pytest.mark.slow
def test_a_replay_is_of_the_parameters_that_the_run_measured(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=cartpole", "seed=1", "iterations=6", "evaluate_every=1", "validation_episodes=4"]
    words += ["evaluation_episodes=4", "measure=best", "algo.lr=0.05"]  # the third iteration is the best one
    assert run.main([*words, f"out={tmp_path / 'best'}"]) == 0
    with serve(str(tmp_path / "best")) as client:
        assert client.post("replay", greedy=True, episode=0)["iteration"] == 3
