"""Mistakes in `act` of a policy of one's own are one line that names them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rlkit.envs import cartpole, pendulum
from torch import Tensor

from rlkit import policies, seeding
from rlkit.api import Env, UserError


class Own(policies.PolicyModule):
    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__(seeding.generator(0, "action"))
        self.answer = answer

    def act(self, observation: Tensor, greedy: bool = False) -> Any:
        return self.answer(observation)


class WithoutGreedy(Own):
    def act(self, observation: Tensor) -> Any:  # type: ignore[override]
        return self.answer(observation)


def made(module: Any) -> Env:
    env: Env = module.make(module.Config(rows=2), 0, torch.device("cpu"))
    return env


@pytest.mark.parametrize(
    ("module", "answer", "told"),
    [
        (pendulum, lambda x: x[:, :1].numpy(), r"a ndarray for 2 .*: let it return a tensor \[2, 1\], the action of"),
        (pendulum, lambda x: None, "a NoneType"),
        (pendulum, lambda x: x[:1, :1], r"a tensor \[1, 1\] for 2 observations"),  # one action for all of them
        (pendulum, lambda x: x[:, 0], r"a tensor \[2\]"),
        (cartpole, lambda x: torch.zeros(len(x), 1), r"a tensor \[2, 1\] for 2 .*: let it return a tensor \[2\]"),
        (cartpole, lambda x: x.amax(-1), "numbers that are not whole"),  # the value in place of the choice
        (cartpole, lambda x: x[:, 0] * torch.nan, "numbers that are not whole"),
    ],
)
def test_what_is_not_an_action_of_each_row_is_refused(module: Any, answer: Callable[[Tensor], Any], told: str) -> None:
    env = made(module)
    for play in (lambda: env.evaluate(Own(answer), episodes=2), lambda: env.rollout(Own(answer), steps=2)):
        with pytest.raises(UserError, match=f"^act of the policy returned {told}"):
            play()


@pytest.mark.parametrize("answer", [lambda x: x[:, 0] > 0, lambda x: (x[:, 0] > 0).float()])
def test_choices_that_are_true_or_false_are_played(answer: Callable[[Tensor], Tensor]) -> None:
    assert made(cartpole).rollout(Own(answer), steps=2)["action"].dtype == torch.int64


def test_an_action_that_is_no_number_is_the_fault_of_the_policy() -> None:
    env = made(pendulum)
    told = rf"^not finite: an action of the policy .* reset seed {env.episode_seed('test', 0)} .*correct act of a poli"
    with pytest.raises(FloatingPointError, match=told):
        env.evaluate(Own(lambda x: x[:, :1] * torch.nan), episodes=2, split="test")


def test_an_act_without_greedy_is_refused_before_anything_is_played() -> None:
    with pytest.raises(UserError, match=r"^WithoutGreedy\.act cannot be called .*def act\(self, observation, greedy="):
        made(cartpole).check(WithoutGreedy(lambda x: x))
    made(cartpole).check(Own(lambda x: x))
