"""What an environment of the user's own returns from `evaluate`."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rlkit.errors import UserError
from rlkit.scores import Scores, checked


class Mine:
    metric = "return"


class Solved:
    metric = "accuracy"


FINE = Scores(torch.tensor([1.0, 2.0]), torch.tensor([3, 4]))


def fine(**parts: Any) -> Scores:  # Any: of other types than they should be
    return replace(FINE, **parts)


WRONG = {
    "a tuple: let it return rlkit.scores.Scores": (FINE.score, FINE.length),
    "as score a ndarray: let it be a tensor": fine(score=FINE.score.numpy()),
    r"as score a tensor of the shape \(2, 1\)": fine(score=FINE.score[:, None]),
    r"as length a tensor of the shape \(1,\)": fine(length=FINE.length[:1]),
    "a score that is not finite": fine(score=torch.tensor([1.0, torch.nan])),
    "1 values of the metric 'x' for 2 episodes": fine(metrics={"x": [1.0]}),
    "a float of the metric 'x' for 2 episodes": fine(metrics={"x": 1.0}),
    "nan as the metric 'x' of an episode": fine(metrics={"x": [1.0, float("nan")]}),
    "'a' as the metric 'x' of an episode": fine(metrics={"x": ["a", None]}),
}


@pytest.mark.parametrize("problem", WRONG)
def test_what_is_not_a_number_for_each_episode_is_one_line(problem: str) -> None:
    with pytest.raises(UserError, match=f"Mine.evaluate .*{problem}"):
        checked(Mine(), WRONG[problem])


def test_a_validation_may_be_no_number() -> None:
    found = checked(Mine(), fine(score=torch.tensor([1.0, torch.nan]), metrics={"x": [1.0, float("inf")]}), False)
    assert found.score.isnan().tolist() == [False, True] and found.metrics == {"x": [1.0, float("inf")]}


def test_an_accuracy_is_between_0_and_1() -> None:
    with pytest.raises(UserError, match=r"Solved.evaluate gave an accuracy outside of 0 to 1"):
        checked(Solved(), FINE)


def test_numbers_of_other_types_are_read() -> None:
    given = {"a": torch.tensor([1, 0]), "b": np.array([True, False]), "c": [np.float32(0.5), None]}
    given["d"] = [torch.tensor(0.5), np.array(2)]  # as of torch.stack(rewards).mean()
    found = checked(Mine(), fine(score=torch.tensor([1, 2]), metrics=given))
    assert found.score.dtype == torch.float64 and found.score.tolist() == [1, 2]
    assert found.metrics == {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.5, None], "d": [0.5, 2.0]}
    assert not checked(Mine(), fine(score=torch.ones(2, requires_grad=True))).score.requires_grad
