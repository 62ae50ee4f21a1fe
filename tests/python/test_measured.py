"""What a program reads of a run are the parameters that the run itself measured."""

import json
from pathlib import Path

import pytest

import rlkit
from rlkit import evaluate


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> rlkit.Run:
    """A run whose best parameters are not its last ones."""
    keys = {"evaluate_every": 1, "validation_episodes": 4, "evaluation_episodes": 4, "algo.lr": 0.05}
    out = tmp_path_factory.mktemp("runs") / "best"
    return rlkit.train("ppo", "cartpole", quiet=True, out=out, seed=1, iterations=6, measure="best", **keys)


@pytest.mark.slow
def test_a_run_evaluates_and_plays_what_it_measured(found: rlkit.Run) -> None:
    told = json.loads((found.folder / "summary.json").read_text())["evaluation"]["after"]["mean"]
    for opened in (found, rlkit.load(found.folder)):
        scores = opened.evaluate(episodes=4)
        assert (scores["checkpoint"], scores["iteration"], scores["greedy"]["mean"]) == ("best", 3, told)
    scores = rlkit.load(found.folder, checkpoint="latest").evaluate(episodes=4)
    assert (scores["checkpoint"], scores["iteration"]) == ("latest", 6) and scores["greedy"]["mean"] != told


@pytest.mark.slow
def test_evaluating_writes_only_the_video(found: rlkit.Run, tmp_path: Path) -> None:
    before = sorted(path.name for path in found.folder.iterdir())
    found.evaluate(episodes=1, video=tmp_path / "one.gif")
    assert sorted(path.name for path in found.folder.iterdir()) == before
    assert (tmp_path / "one.gif").is_file()


@pytest.mark.slow
def test_a_run_is_measured_alike_each_time_and_as_by_the_command(tmp_path: Path) -> None:
    keys = {"env.test": 40, "env.validation": 4, "env.rows": 2, "evaluation_episodes": 2, "threads": 1}
    run = rlkit.train("grpo", "gsm8k", quiet=True, out=tmp_path / "text", iterations=1, **keys)
    asked = {"pass_at": (1, 2), "samples": 3, "threads": 1}
    first, second = run.evaluate(**asked), run.evaluate(**asked)
    assert first == second
    assert 0 < first["sampled"]["mean"] < 1, "what is drawn decides"
    assert evaluate.main([str(run.folder), "pass_at=1,2", "samples=3", "threads=1"]) == 0
    assert json.loads((run.folder / "evaluation-test.json").read_text()) == first
    assert run.evaluate(**asked, seed=1)["pass@1"] != first["pass@1"]
    assert run.evaluate(**asked) == first
