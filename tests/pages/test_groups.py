"""Groups of attempts on the page of tokens: which one it opens at, and those that are not learned from."""

from pathlib import Path

import pytest
import torch
from support.served import serve
from tensordict import TensorDict

from rlkit import run
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


@pytest.mark.slow
def test_attempts_that_a_filter_leaves_out_are_shown_as_they_were_written(tmp_path: Path) -> None:
    keys = [
        "algo.group=4",
        "algo.overlong_filter=true",
        "algo.overlong_buffer=0",
        "env.max_tokens=12",
        "policy.temperature=1.5",
    ]
    sizes = ["env.rows=16", "env.test=4", "env.validation=4", "iterations=2", "threads=1", "evaluation_episodes=2"]
    assert run.main(["algo=dapo", "env=gsm8k", *keys, *sizes, f"out={tmp_path / 'run'}"]) == 0
    with serve(str(tmp_path / "run")) as client:
        count = client.post("play")["groups"]
        groups = [client.post("group", group=i) for i in range(count)]
    attempts = [attempt for group in groups for attempt in group["attempts"]]
    cut = [attempt for attempt in attempts if len(attempt["text"]) == 12 and not attempt["end"][-1]]
    assert 0 < len(cut) < len(attempts) and any(
        group["attempts"][0] in cut and not all(a in cut for a in group["attempts"]) for group in groups
    )
    assert all(group["prompt"].endswith("?\n") for group in groups)
    for attempt in attempts:
        assert attempt["text"] and max(attempt["log_prob"]) < 0 and not any(attempt["read"])
        assert attempt["ratio"] == pytest.approx([1] * len(attempt["ratio"]), abs=1e-4)
    assert all(not any(attempt["advantage"]) for attempt in cut)
