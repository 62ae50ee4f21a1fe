"""algo.starts=own: groups of unrelated episodes, one start for each attempt."""

from typing import Any

import pytest
import torch
from support.fakes import RaggedText, algorithm, on_text
from support.probes import make
from torch.testing import assert_close

from rlkit import policies
from rlkit.api import UserError
from rlkit.settings import plugins

MEMBERS = ["grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "gspo", "cispo", "gmpo", "sapo", "bnpo"]


def cartpole(rows: int) -> Any:
    return make(plugins.load("envs", "cartpole"), rows=rows, step_limit=60)


def of(name: str, env: Any, **settings: Any) -> Any:
    return algorithm(name, env, policies.Network((8,)), **settings)


@pytest.mark.parametrize("name", MEMBERS)
def test_each_attempt_has_a_start_of_its_own_and_rows_counts_starts(name: str) -> None:
    env = cartpole(8)
    rollout = of(name, env, group=4, starts="own").rollout(env)
    assert rollout.batch_size[:2] == (2, 4)
    first = rollout["observation"][:, :, 0].flatten(0, 1)
    assert len(first.unique(dim=0)) == 8


def test_attempts_are_compared_with_those_of_the_other_starts_of_their_group() -> None:
    env = cartpole(8)
    algo = of("rloo", env, group=4, starts="own")
    rollout = algo.rollout(env)
    score = rollout["score"].clone()
    worth = algo.credit(rollout)["advantage"][:, 0]
    others = (score.sum(1, keepdim=True) - score) / 3
    assert_close(worth, (score - others).flatten())


def test_the_episodes_are_those_that_other_algorithms_play_from_these_rows() -> None:
    env, plain = cartpole(8), cartpole(8)
    grouped = of("grpo", env, group=4, starts="own").rollout(env)
    starts = of("reinforce", plain).rollout(plain)["observation"][:, 0]
    assert torch.equal(grouped["observation"][:, :, 0].flatten(0, 1), starts)


def test_dynamic_sampling_counts_groups() -> None:
    env = cartpole(8)
    algo = of("dapo", env, group=4, starts="own")
    assert len(algo.credit(algo.rollout(env))) == 8


def test_different_prompts_are_not_compared() -> None:
    with pytest.raises(UserError, match=r"^algo\.starts=own would compare answers to different prompts"):
        on_text("grpo", RaggedText(), group=4, starts="own")


def test_groups_that_do_not_come_out_even_are_refused() -> None:
    with pytest.raises(UserError, match=r"env\.rows=6 is not a multiple of that: give env\.rows=24 for"):
        of("grpo", cartpole(6), group=4, starts="own")
