"""How often a run stops to evaluate."""

from dataclasses import replace

import pytest
from support.fakes import tabular

from rlkit.loop import evaluation_is_due
from rlkit.progress import Progress
from rlkit.settings.config import Run


def evaluated(run: Run, unit: str, step: int = 1) -> list[int]:
    """How far a run is at each of its evaluations."""
    env, progress, found = tabular("frozenlake", rows=2), Progress(), []
    while not progress.over(run):
        before = progress.fraction(run)
        progress = replace(progress, **{unit: vars(progress)[unit] + step})
        if evaluation_is_due(env, run, progress, before):
            found.append(vars(progress)[unit])
    return found


@pytest.mark.parametrize(("iterations", "times"), [(50, 50), (100, 100), (25, 25), (12, 7), (99, 99), (1000, 300)])
def test_a_run_is_evaluated_as_often_as_was_asked_for(iterations: int, times: int) -> None:
    """The k-th evaluation follows the first iteration i with i · times ≥ k · iterations."""
    by_hand = [-(-k * iterations // times) for k in range(1, times + 1)]
    assert evaluated(Run(iterations=iterations, evaluations=times), "iteration") == by_hand
    assert evaluated(Run(env_steps=7 * iterations, evaluations=times), "env_steps", 7) == [7 * i for i in by_hand]


def test_the_last_iteration_of_a_run_is_evaluated_once() -> None:
    assert evaluated(Run(env_steps=10, evaluations=2), "env_steps", 3) == [6, 12]
