"""DAPO: starts that say nothing are played again, attempts that are cut short or nearly so are left out or pay."""

import json
from typing import Any

import pytest
import torch
from support.fakes import CENTERED, SCORES, RaggedText, algorithm, cartpole, credited, on_text, with_scores
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit import memory, policies
from rlkit.api import UserError


class Uneven(RaggedText):
    """Scores by a script: what each start of each rollout gives its two attempts."""

    def __init__(self, script: list[list[tuple[float, float]]]) -> None:
        super().__init__(rows=len(script[0]))
        self.script, self.played = list(script), 0

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        self.seed = self.played  # other prompts and lengths each time
        batch = super().rollout(policy, steps, repeats)
        batch["score"] = torch.tensor(self.script[min(self.played, len(self.script) - 1)]).double()
        batch["problem"] = torch.arange(self.rows).add(10 * self.played).unsqueeze(1).expand(-1, repeats)
        self.played += 1
        return batch


FLAT, UP = (1.0, 1.0), (1.0, 0.0)


def test_dynamic_sampling_plays_on_until_enough_starts_say_something_and_learns_from_those() -> None:
    env = Uneven([[FLAT, UP, FLAT], [FLAT, FLAT, FLAT], [UP, UP, UP]])
    algo = on_text("dapo", env, group=2)
    rollout = algo.rollout(env)
    assert env.played == 3 and rollout.batch_size == (9, 2)  # all that was played is counted
    # Starts that differ come first, each with what its rollout noted about it.
    assert rollout["problem"].tolist() == [[n, n] for n in (1, 20, 21, 22, 0, 2, 10, 11, 12)]
    assert not hasattr(env, "last") and not hasattr(env, "finished")
    assert bool(rollout["mask"].flatten(0, 1).any(-1).all()), "what was played stays as it was"
    batch = credited(algo, rollout)
    assert len(batch) == 6 and bool((batch["advantage"] != 0).any(-1).all())
    assert_close(batch["weight"].sum(), torch.tensor(1.0))
    assert_close(algo.loss(batch)[1]["signal"], torch.tensor(4 / 9))


def test_without_dynamic_sampling_the_share_of_starts_that_say_something_is_told_too() -> None:
    env = Uneven([[FLAT, UP, FLAT, FLAT]])
    algo = on_text("dapo", env, group=2, dynamic_sampling=False)
    assert_close(algo.loss(credited(algo, algo.rollout(env)))[1]["signal"], torch.tensor(1 / 4))


def test_dynamic_sampling_goes_on_with_what_it_has_after_its_tries() -> None:
    env = Uneven([[FLAT, UP], [FLAT, FLAT]])
    algo = on_text("dapo", env, group=2, tries=3)
    batch = credited(algo, algo.rollout(env))
    assert env.played == 3 and len(batch) == 2


def test_dynamic_sampling_gives_up_and_says_so_when_nothing_differs() -> None:
    env = Uneven([[FLAT, FLAT]])
    algo = on_text("dapo", env, group=2, tries=4)
    with pytest.raises(UserError, match=r"in 4 rollouts .*each of 8 groups had equal scores only.*algo\.group"):
        algo.rollout(env)
    assert env.played == 4
    assert on_text("dapo", env, group=2, dynamic_sampling=False).rollout(env).batch_size == (2, 2)


def test_overlong_attempts_are_left_out_of_the_loss_but_not_of_their_group() -> None:
    algo, rollout = with_scores("dapo", SCORES, overlong_filter=True, std_eps=0.0)
    rollout["truncated"] = torch.tensor([[True, False, False, False], [False, False, True, False]])
    batch = algo.credit(rollout)
    cut = rollout["truncated"].flatten()
    assert not batch["mask"][cut].any() and bool(batch["mask"][~cut].any(-1).all())
    each = batch["advantage"].sum(-1) / batch["mask"].sum(-1).clamp(min=1)
    assert_close(each, (CENTERED / 0.5).flatten() * ~cut)


def test_the_soft_punishment_grows_over_the_buffer() -> None:
    env = RaggedText(rows=8)
    env.longest = 6
    algo = on_text("dapo", env, group=4, overlong_buffer=4, overlong_penalty=0.5)
    rollout = algo.rollout(env)
    length = rollout["mask"].sum(-1)
    punished = {1: 0.0, 2: 0.0, 3: 0.125, 4: 0.25, 5: 0.375, 6: 0.5}
    expected = torch.tensor([[punished[int(n)] for n in row] for row in length]).double()
    assert set(length.flatten().tolist()) == set(punished)
    assert_close(rollout["score"] - algo.scores(rollout), expected)
    with pytest.raises(UserError, match="exceeds the longest attempt: give at most 6"):
        on_text("dapo", env, overlong_buffer=7)


def test_on_control_an_attempt_that_reached_the_time_limit_was_cut_short() -> None:
    env = cartpole(3, step_limit=12)
    algo = algorithm("dapo", env, policies.Network(), group=4, overlong_filter=True, dynamic_sampling=False)
    rollout = algo.rollout(env)
    whole = rollout["mask"].sum(-1) == 12
    assert bool(whole.any()) and not bool(whole.all())
    ended = rollout["terminated"].any(-1)
    assert torch.equal(algo.credit(rollout)["mask"].any(-1).view(3, 4), ended)


def test_a_run_ends_by_itself_when_nothing_is_left_to_learn_but_not_before_it_began(tmp_path: Any) -> None:
    from rlkit import run

    short = ["env_steps=100_000", "threads=1", "evaluation_episodes=2", "validation_episodes=2", "algo.tries=2"]
    assert run.main(["algo=dapo", "env=cartpole", "env.step_limit=1", *short, f"out={tmp_path / 'a'}"]) == 2
    assert run.main(["algo=dapo", "env=cartpole", "env.step_limit=12", *short, f"out={tmp_path / 'b'}"]) == 0
    found = json.loads((tmp_path / "b" / "summary.json").read_text())
    assert found["iterations"] > 0 and found["env_steps"] < 100_000 and found["evaluation"]["after"]["mean"] == 12


def test_all_rollouts_of_an_iteration_must_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late in a run most groups score alike: then it plays as many rollouts as it may, and keeps them all."""
    monkeypatch.setattr(memory, "free", lambda: 10**6)
    fits = algorithm("dapo", cartpole(2), policies.Network(), group=4, tries=1)
    assert fits.rows == 2
    algorithm("dapo", cartpole(2), policies.Network(), group=4, tries=100, dynamic_sampling=False)
    with pytest.raises(UserError, match=r"^algo.tries=100 with env.rows=2 needs .* are free: give less"):
        algorithm("dapo", cartpole(2), policies.Network(), group=4, tries=100)
