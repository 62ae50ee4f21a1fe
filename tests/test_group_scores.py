"""Advantages within groups: one attempt, one score, and whole numbers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlkit import returns


@pytest.mark.parametrize("relative", [returns.group_relative, returns.batch_relative])
@pytest.mark.parametrize("correction", [0, 1])
def test_one_score_is_its_own_group_and_gets_zero(relative: Callable[..., Tensor], correction: int) -> None:
    for score in (torch.tensor([[5.1]]), torch.tensor([[1.0], [3.0]])):
        assert_close(relative(score, correction=correction), torch.zeros_like(score), rtol=0, atol=0)


def test_leave_one_out_of_one_attempt_says_that_there_is_no_other() -> None:
    with pytest.raises(ValueError, match=r"there is no other in \[3, 1\]"):
        returns.leave_one_out(torch.ones(3, 1))


@pytest.mark.parametrize(
    "advantage",
    [
        returns.group_centered,
        returns.group_relative,
        returns.batch_relative,
        returns.leave_one_out,
        returns.beta_relative,
    ],
)
def test_whole_numbers_and_truth_values_are_scores(advantage: Callable[[Tensor], Tensor]) -> None:
    score = torch.tensor([[1, 0, 0, 1], [1, 1, 1, 0]])
    for given in (score, score.bool(), score.to(torch.int32)):
        assert_close(advantage(given), advantage(score.float()), rtol=0, atol=0)
