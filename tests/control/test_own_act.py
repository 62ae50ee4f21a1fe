"""Mistakes in `act` of a policy of one's own are one line that names them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlkit.envs import cartpole, pendulum
from torch import Tensor, nn

import rlkit
from rlkit import policies, seeding
from rlkit.api import Env, UserError
from rlkit.control import video


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


class Moving(Own):
    """Has another function in training mode, at each call."""

    def __init__(self) -> None:
        super().__init__(lambda x: self.layers(x).argmax(-1))
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 2))
        self.layers[0].eval()


def test_a_policy_is_measured_in_eval_mode_and_goes_on_in_its_own() -> None:
    env, policy = made(cartpole), Moving()
    before = {key: x.clone() for key, x in policy.state_dict().items()}
    one, other = (env.evaluate(policy, episodes=8).score for _ in range(2))
    assert all(torch.equal(x, before[key]) for key, x in policy.state_dict().items())
    assert [part.training for part in policy.layers] == [False, True, True, True]
    assert one.equal(other) and one.equal(env.evaluate(policy.eval(), episodes=8).score)


def test_the_episode_that_is_drawn_is_the_one_that_was_measured() -> None:
    env, policy = made(cartpole), Moving()
    score = env.evaluate(policy, episodes=1, split="test").score
    frames = video.frames(env, policy, 0, "test", draw=False)
    assert sum(frame["reward"] for frame in frames) == float(score) and policy.layers[1].training


DROPPING = """
import torch
from rlkit.algorithms import reinforce
from rlkit.algorithms.reinforce import Config


def make(config, env, network):
    algo = reinforce.make(config, env, network)
    algo.policy.trunk = torch.nn.Dropout(0.5)
    return algo
"""


def test_a_loaded_policy_acts_in_eval_mode(tmp_path: Path) -> None:
    (tmp_path / "dropping.py").write_text(DROPPING, encoding="utf-8")
    keys: dict[str, Any] = {"iterations": 1, "evaluation_episodes": 2, "validation_episodes": 2, "quiet": True}
    run = rlkit.train(tmp_path / "dropping.py", "cartpole", out=tmp_path / "r", **keys)
    seen = torch.randn(50, 4)
    assert (run.policy.predict(seen) == run.policy.predict(seen)).all()
