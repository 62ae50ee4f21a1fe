"""Trials are compared where the same part of each run is done, whatever the length of their iterations."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from support.pretended_searches import WORDS
from support.words import last

from rlkit.comparison import grid
from rlkit.tuning import search
from rlkit.tuning.points import MOST, STRIDE, finish, passed, points, reach, spread
from rlkit.tuning.problem import Problem, parse
from rlkit.tuning.study import Study, Trial

pytest.importorskip("optuna")
TEN = Fraction(10)


def trial(values: dict[int, float]) -> Trial:
    return Trial(1, {}, "complete", 1.0, values)


def attempt(out: Path, *words: str) -> search.Attempt:
    problem = Problem(*parse(last(*WORDS, "iterations=none", *words)))
    return search.Attempt(problem, Study(out, problem.space, "tpe", "none", 0), 0, 1, out)


def looked(one: search.Attempt, scores: dict[int, float]) -> dict[int, float]:
    """The values of a trial whose only run was evaluated after these steps."""
    lines = [{"iteration": i + 1, "env_steps": x, "eval/return": y} for i, (x, y) in enumerate(scores.items())]
    one.jobs[0].folder.mkdir(parents=True)
    (one.jobs[0].folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    one.look()
    return one.values


def test_a_trial_with_long_iterations_stands_beside_others_at_equal_experience(tmp_path: Path) -> None:
    one = attempt(tmp_path, "env_steps=20000")
    found = looked(one, {4096: 1.0, 8192: 2.0, 12288: 3.0, 16384: 4.0})
    assert found == {1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 3.0, 6: 3.0, 7: 4.0}  # none before the first
    (tmp_path / "short").mkdir()
    one = attempt(tmp_path / "short", "env_steps=20000")
    assert looked(one, {2048 * i: float(i) for i in range(1, 11)}) == {i: i + 1.0 for i in range(10)}


def test_no_evaluation_is_left_out_where_there_is_one_for_each_point(tmp_path: Path) -> None:
    """Iterations of 140 of 2,000 steps; the best evaluation comes at 1,260."""
    one = attempt(tmp_path, "env_steps=2000")
    scores = {280: 66.0, 420: 84.0, 700: 83.0, 840: 99.0, 1120: 136.0, 1260: 191.0, 1400: 100.0, 1680: 90.0, 1820: 80.0}
    found = looked(one, scores | {2000: 70.0})
    assert found == {0: 66.0, 1: 84.0, 2: 83.0, 3: 99.0, 4: 136.0, 5: 191.0, 6: 100.0, 7: 90.0, 8: 80.0, 9: 70.0}


def test_evaluations_every_few_iterations_stand_at_tenths(tmp_path: Path) -> None:
    one = attempt(tmp_path, "env_steps=1000", "evaluate_every=1", "evaluations=0")
    assert looked(one, {20 * i: float(i) for i in range(1, 18)}) == {0: 5.0, 1: 10.0, 2: 15.0}


def test_a_run_that_ends_before_its_last_point_keeps_its_value_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = attempt(tmp_path, "env_steps=1000")
    monkeypatch.setattr(grid, "summary", lambda job: {"finished": True})
    assert looked(one, {500: 5.0, 700: 7.0}) == {4: 5.0, 5: 5.0, 6: 7.0, 7: 7.0, 8: 7.0, 9: 7.0}


@pytest.mark.parametrize(
    ("iterations", "env_steps", "every", "number", "points_"),
    [
        (None, 20000, 0, 10, 10),
        (60, None, 0, 10, 10),
        (5, None, 0, 10, 5),  # as many as it has evaluations
        (100, None, 10, 0, 10),
        (None, 20000, 10, 0, 10),
        (5, None, 10, 0, 1),
        (None, 20000, 0, 0, 1),
        (None, 10**9, 0, 10**9, MOST),
    ],
)
def test_how_many_points_a_run_has(
    iterations: int | None, env_steps: int | None, every: int, number: int, points_: int
) -> None:
    run = {"iterations": iterations, "env_steps": env_steps, "evaluate_every": every, "evaluations": number}
    assert points(run) == points_


def test_every_evaluation_of_some_iterations_has_a_point_of_its_own() -> None:
    """As before, so a search that an earlier version began goes on alike."""
    for iterations, every in ((105, 10), (1000, 7), (60, 60), (12, 5)):
        among = points({"iterations": iterations, "env_steps": None, "evaluate_every": every, "evaluations": 0})
        evaluated = sorted({*range(every, iterations + 1, every), iterations})
        assert [passed(Fraction(i, iterations), among) for i in evaluated] == list(range(len(evaluated)))


def test_finished_trials_of_an_earlier_version_are_spread_over_the_points() -> None:
    """There the values were numbered as the evaluations of each run came."""
    half = {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0, 4: 5.0}
    second = {STRIDE + step: x + 5 for step, x in half.items()}
    whole = {step: float(step) for step in range(10)}
    pruned = Trial(3, {}, "pruned", None, half)
    found = spread([trial(half), trial(half | second), trial(whole), pruned], TEN)
    values = {1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 3.0, 6: 3.0, 7: 4.0, 8: 4.0, 9: 5.0}
    assert found[0].values == values
    assert found[1].values == values | {STRIDE + step: x + 5 for step, x in values.items()}
    assert found[2].values == whole and found[3] == pruned
    assert spread(found, TEN) == found


def test_a_value_is_not_carried_into_another_run() -> None:
    values = {9: 1.0}
    reach(values, 1, 2, 5.0)
    assert values == {9: 1.0, STRIDE + 2: 5.0}
    values = {STRIDE + 9: 1.0}
    finish(values, 0, TEN)  # a run without a value
    assert values == {STRIDE + 9: 1.0}
