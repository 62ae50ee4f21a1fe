"""What a run folder of a stranger may run: nothing from outside rlkit, unless it is trusted."""

import os
from pathlib import Path

import pytest

import rlkit
from rlkit.recording import writers
from rlkit.settings import places

OUTSIDE = {
    "algo: {name: ./mine.py}\nenv: {name: cartpole}\n": r"algo=\./mine\.py",
    "algo: {name: my_pkg.sac}\nenv: {name: cartpole}\n": r"algo=my_pkg\.sac",
    "algo: {name: ppo}\nenv: {name: /tmp/env.py}\n": r"env=/tmp/env\.py",
    "algo: {name: grpo}\nenv: {name: gsm8k, reward: 'correct,judge.py:f'}\n": r"env\.reward=judge\.py:f; ",
    "algo: {name: grpo}\nenv: {name: gsm8k, reward: 'my_pkg.rewards:f'}\n": r"env\.reward=my_pkg\.rewards:f",
    "algo: {name: grpo}\nenv: {name: gsm8k, reward: 'correct_my.py:f'}\n": r"env\.reward=correct_my\.py:f",
    "algo: {name: ppo}\nenv: {name: gym, id: 'my_pkg:My-v0'}\n": r"env\.id=my_pkg:My-v0",
    "algo: {name: ppo}\nenv: {name: gym, entry: 'my_pkg:My'}\n": r"env\.entry=my_pkg:My",
}


@pytest.mark.parametrize("text", OUTSIDE)
def test_a_strangers_code_is_run_only_when_it_is_trusted(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(rlkit.UserError, match=f"code from outside rlkit: {OUTSIDE[text]}"):
        rlkit.load(tmp_path)
    assert rlkit.load(tmp_path, trust=True).summary is None


@pytest.mark.parametrize("reward", ["correct", "model:runs/judge", None])
def test_what_is_of_rlkit_needs_no_trust(reward: str | None, tmp_path: Path) -> None:
    told = "" if reward is None else f", reward: '{reward}'"
    (tmp_path / "config.yaml").write_text(f"algo: {{name: grpo}}\nenv: {{name: gsm8k{told}}}\n")
    assert rlkit.load(tmp_path).summary is None


def test_a_folder_that_is_opened_without_load_is_not_trusted_either(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("algo: {name: my_pkg.sac}\nenv: {name: cartpole}\n")
    with pytest.raises(rlkit.UserError, match="my_pkg"):
        rlkit.Run(tmp_path).resume(quiet=True)


def test_what_a_run_names_is_hashed_once_where_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.py"
    own.write_text("from rlkit.algorithms.q_learning import Config, make\n")
    keys = {"algo.steps": 4, "evaluation_episodes": 1}
    run = rlkit.train(own, "gridworld", out=tmp_path / "r", quiet=True, iterations=1, **keys)
    hashed: list[str] = []
    mark = places.mark
    monkeypatch.setattr(places, "mark", lambda name: hashed.append(name) or mark(name))
    rlkit.load(run.folder, trust=True)
    assert hashed == [str(own)]
    run.resume(iterations=2, quiet=True)
    assert hashed == [str(own)] * 3, "once for trust, and once for config.yaml"


@pytest.mark.timeout(20)
def test_files_that_are_no_runs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "LONGEST", 1 << 16)
    (tmp_path / "config.yaml").write_text("algo: {name: ppo}\nenv: {name: cartpole}\n")
    for name in ("metrics.jsonl", "summary.json"):
        (tmp_path / name).write_bytes(b'{"iteration": 1}\n')
        os.truncate(tmp_path / name, 2**40)
    found = rlkit.load(tmp_path)
    assert found.metrics == [{"iteration": 1}]
    with pytest.raises(rlkit.UserError, match=r"summary\.json cannot be read: it has more than 16,777,216 bytes"):
        found.summary  # noqa: B018


OWN = """
from pathlib import Path

from rlkit.algorithms.q_learning import Config, make

Path(__file__).with_name("ran").touch()
"""


@pytest.mark.slow
def test_a_path_to_compare_with_has_no_trust_and_a_run_brings_its_own(tmp_path: Path) -> None:
    keys = {"algo.steps": 4, "evaluation_episodes": 1, "iterations": 1, "quiet": True}
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(OWN)
    run = rlkit.train(tmp_path / "mine" / "own.py", "gridworld", out=tmp_path / "run", **keys)
    theirs = rlkit.train(tmp_path / "theirs" / "own.py", "gridworld", out=tmp_path / "other", **keys).folder
    ran = tmp_path / "theirs" / "ran"
    for ours in (run, rlkit.load(run.folder, trust=True), rlkit.load(run.folder, trust="changed")):
        for named in (str(theirs), theirs, f"{theirs}:latest", rlkit.Run(theirs)):
            ran.unlink(missing_ok=True)
            with pytest.raises(
                rlkit.UserError, match=r"other would run code from outside rlkit: algo=.*; against=rlkit"
            ):
                ours.evaluate(episodes=2, against=named)
            assert not ran.exists()
        assert ours.evaluate(episodes=2, against=rlkit.load(theirs, trust=True))["against"]["p"] == 1
        assert ran.exists()
        assert ours.evaluate(episodes=2, against=f"{run.folder}:latest")["against"]["p"] == 1, "its own folder is open"


@pytest.mark.slow
def test_a_run_to_compare_with_is_compared_with_its_checkpoint(tmp_path: Path) -> None:
    keys = {"evaluation_episodes": 1, "evaluate_every": 1, "validation_episodes": 2, "iterations": 2, "quiet": True}
    run = rlkit.train("q_learning", "gridworld", out=tmp_path / "run", **keys)
    for name in ("best", "latest"):
        found = run.evaluate(episodes=2, against=rlkit.load(run.folder, checkpoint=name))["against"]
        assert found["checkpoint"] == name


@pytest.mark.slow
def test_a_folder_with_a_colon_in_its_name_is_that_folder(tmp_path: Path) -> None:
    """`cc` beside `cc:latest`, which could be read as a checkpoint of it."""
    keys = {"env_steps": 64, "quiet": True, "evaluation_episodes": 2}
    ours = rlkit.train("ppo", "cartpole", out=tmp_path / "ours", **keys)
    rlkit.train("ppo", "cartpole", seed=7, out=tmp_path / "cc", **keys)
    named = rlkit.train("ppo", "cartpole", seed=8, out=tmp_path / "cc:latest", **keys)
    for given in (named, str(tmp_path / "cc:latest"), rlkit.load(tmp_path / "cc:latest", checkpoint="latest")):
        found = ours.evaluate(episodes=2, against=given)["against"]
        assert found["folder"] == str(tmp_path / "cc:latest")
    assert ours.evaluate(episodes=2, against=f"{tmp_path / 'cc'}")["against"]["folder"] == str(tmp_path / "cc")


@pytest.mark.slow
def test_a_run_with_a_checkpoint_is_never_read_as_another_folder(tmp_path: Path) -> None:
    keys = {"env_steps": 64, "quiet": True, "evaluation_episodes": 2}
    ours = rlkit.train("ppo", "cartpole", out=tmp_path / "ours", **keys)
    rlkit.train("ppo", "cartpole", seed=7, out=tmp_path / "cc", **keys)
    rlkit.train("ppo", "cartpole", seed=8, out=tmp_path / "cc:latest", **keys)
    given = rlkit.load(tmp_path / "cc", checkpoint="latest")
    assert ours.evaluate(episodes=2, against=given)["against"]["folder"] == str(tmp_path / "cc")
