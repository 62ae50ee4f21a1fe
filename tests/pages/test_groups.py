"""Which group of attempts the page of tokens opens at."""

import torch
from tensordict import TensorDict

from rlkit.pages.groups import Doing, informative, spreads


def rows(scores: list[float], advantages: list[float] | None = None) -> TensorDict:
    mask = torch.ones(len(scores), 3, dtype=torch.bool)
    data = {"mask": mask, "score": torch.tensor(scores)}
    if advantages is not None:
        data = {"mask": mask, "advantage": torch.tensor(advantages)[:, None]}
    return TensorDict(data, batch_size=[len(scores)])


def test_the_group_whose_scores_differ_most_comes_first_and_equal_ones_never() -> None:
    played = rows([*[1, 1, 1, 1], *[1, 0, 0, 0], *[1, 1, 0, 0], *[0, 0, 0, 0]])
    assert informative(played, 4) == [2, 1]
    torch.testing.assert_close(spreads(played, 4), torch.tensor([0, 3**0.5 / 4, 0.5, 0]))


def test_without_scores_advantages_are_compared_and_single_attempts_are_judged_by_their_size() -> None:
    played = rows([0, 0, 0, 0], [0.5, 0.5, -1.0, 1.0])
    assert informative(played, 2) == [1]
    assert informative(played, 1) == [2, 3, 0, 1]
    assert informative(rows([2, 2], None), 1) == []


def test_one_advantage_for_a_row_is_that_of_each_of_its_steps() -> None:
    played = rows([0, 0], [0.5, -1.0])
    alone = played.clone().set("advantage", torch.tensor([0.5, -1.0]))
    assert spreads(alone, 1).tolist() == spreads(played, 1).tolist() == [0.5, 1.0]


def test_a_long_call_says_what_it_is_at() -> None:
    doing = Doing()
    assert doing.told()["steps"] == 0
    doing.begin("writing", "judging")
    doing.next()
    assert (doing.told()["doing"], doing.told()["at"], doing.told()["steps"]) == ("judging", 1, 2)
