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


@pytest.mark.slow
def test_an_open_page_knows_that_the_run_was_made_longer(tmp_path: Path) -> None:
    words = [
        "algo=grpo",
        "env=gsm8k",
        "algo.schedule=linear",
        "algo.lr=1e-3",
        "algo.group=2",
        "env.rows=2",
        "env.max_tokens=4",
    ]
    words += ["evaluation_episodes=2", "validation_episodes=2", "checkpoint_every=1", "threads=1"]
    assert run.main([*words, "iterations=1", f"out={tmp_path / 'r'}"]) == 0
    with serve(str(tmp_path / "r")) as client:
        assert client.post("play")["over"]
        assert run.main([f"resume={tmp_path / 'r'}", "iterations=2"]) == 0
        config = tmp_path / "r" / "config.yaml"
        config.write_text(config.read_text().replace("iterations: 2", "iterations: 4"))  # as if it went on
        played = client.post("play")
    with serve(str(tmp_path / "r")) as client:
        anew = client.post("play")
    assert [played[key] for key in ("iteration", "over", "lr")] == [anew[key] for key in ("iteration", "over", "lr")]
    assert anew["iteration"] == 2 and not anew["over"] and anew["lr"] < 1e-3


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


ROWS = """
from rlkit import buffers
from rlkit.algorithms import reinforce

Config = reinforce.Config


class Rows(reinforce.Reinforce):
    def credit(self, rollout):
        rollout = super().credit(rollout)
        return rollout.set("advantage", rollout["score"] - 0.5)  # one for each row

    def loss(self, batch):
        return super().loss(batch.copy().set("advantage", buffers.per_step(batch["advantage"], batch["mask"])))


make = Rows
"""


@pytest.mark.slow
def test_tokens_of_an_own_algorithm_with_one_advantage_for_a_row_are_shown(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    words = [f"algo={tmp_path / 'rows.py'}", "env=gsm8k", "iterations=1", "env.rows=3", "env.test=2"]
    assert run.main([*words, "env.validation=2", "env.max_tokens=8", f"out={tmp_path / 'run'}"]) == 0
    with serving(choice.site([str(tmp_path / "run")], trust=True)) as client:
        client.post("play")
        for group in range(3):
            [attempt] = client.post("group", group=group)["attempts"]
            assert set(attempt["advantage"]) == {attempt["score"] - 0.5}


@pytest.mark.slow
def test_of_demonstrations_log_probabilities_alone_are_shown(tmp_path: Path) -> None:
    words = ["algo=sft", "env=gsm8k", "iterations=1", "env.rows=2", "env.test=2", "env.validation=2"]
    assert run.main([*words, f"out={tmp_path / 'run'}"]) == 0
    with serve(str(tmp_path / "run")) as client:
        assert client.post("play")["known"] == ["log_prob"]


@pytest.mark.slow
def test_a_replay_says_of_how_many_agents_it_shows_the_first(tmp_path: Path) -> None:
    pytest.importorskip("mpe2")
    words = ["algo=ppo", "env=pettingzoo", "env.id=mpe2.simple_spread_v3", "env.kwargs={max_cycles: 3}", "env.rows=2"]
    words += ["iterations=1", "algo.horizon=16", "policy.hidden=8", "evaluation_episodes=2", "validation_episodes=2"]
    assert run.main([*words, f"out={tmp_path / 'run'}"]) == 0
    with serve(str(tmp_path / "run")) as client:
        assert client.post("replay", greedy=True, episode=0)["agents"] == 3
