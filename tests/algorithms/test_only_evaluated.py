"""A policy that is only evaluated never changes, so nothing is chosen, searched or compared by its score in silence."""

from pathlib import Path

import pytest

from rlkit import compare, evaluate, policies, run

SHORT = ["env=gridworld", "env.step_limit=100", "env_steps=640", "seed=3", "evaluations=2"]
SHORT += ["evaluation_episodes=2", "validation_episodes=2"]
OWN = """from rlkit.algorithms.td import TD, Config

class make(TD):
    pass
"""


@pytest.fixture(params=["td", "monte_carlo", "./mine.py"])
def algo(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An algorithm on a ValueTable, of rlkit or of one's own."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    return str(request.param)


def test_the_best_of_equal_scores_is_refused(algo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([f"algo={algo}", *SHORT, "measure=best", "out=x"]) == 2
    assert f"measure=best keeps the first evaluation's parameters: algo={algo} never" in capsys.readouterr().err
    assert not Path("x").exists()
    words = [f"algo=q_learning,{algo}", "env=gridworld", "seed=0", "measure=best", "out=x"]
    assert compare.main(words) == 2
    assert "leave it out (in a comparison, for all algorithms)" in capsys.readouterr().err
    assert not Path("x").exists()


def test_an_older_run_that_chose_the_best_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "older")
    with monkeypatch.context() as older:
        older.setattr(policies.ValueTable, "only_evaluated", False)
        assert run.main(["algo=td", *SHORT, "measure=best", f"out={folder}"]) == 0
    assert run.main([f"resume={folder}", "env_steps=960"]) == 0
    assert "exact rmse" in capsys.readouterr().out
    assert evaluate.main([folder]) == 0


def test_a_comparison_of_two_runs_says_that_no_score_shows_what_was_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("td", "monte_carlo", "q_learning"):
        assert run.main([f"algo={name}", *SHORT, f"out={tmp_path / name}"]) == 0
    for ours, theirs, who in [
        ("td", "monte_carlo", "td and monte_carlo: "),
        ("td", "q_learning", "td: "),
        ("q_learning", "q_learning", ""),
    ]:
        capsys.readouterr()
        assert evaluate.main([str(tmp_path / ours), f"against={tmp_path / theirs}"]) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        line = f"{who}learning changes values there, never the policy that is scored"
        assert last == line if who else "learning changes" not in last
