"""Each way in which a control run may be sick is produced, and named once with its remedy."""

import json
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.parrot import Parrot
from support.sick import alarms, lines, name, told, world
from tensordict import TensorDict

from rlkit import run
from rlkit.doctor import CHECKS, Doctor, Numbers
from rlkit.doctor.symptoms import of_actions, of_credit, of_observations, of_ratios
from rlkit.meter import Meter
from rlkit.policies import Actor, ActorCritic
from rlkit.recording.log import Log

PPO = ["algo=ppo", "env=cartpole", "algo.minibatches=2", "iterations=4"]


def test_a_healthy_run_names_nothing(tmp_path: Path) -> None:
    assert alarms(tmp_path / "r", "algo=ppo", "env=cartpole", "env_steps=4000") == {}


@pytest.mark.slow
def test_a_step_that_is_far_too_large_is_named_with_all_that_follows_from_it(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", *PPO, "algo.lr=10")
    assert "lower algo.lr" in found["lr_large"]
    assert "kl" in found
    assert lines(tmp_path / "r")[0]["train/update_ratio"] > 1


@pytest.mark.slow
def test_a_step_that_rounding_swallows_is_named(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", *PPO, "algo.lr=1e-12")
    assert list(found) == ["lr_small"] and "raise algo.lr" in found["lr_small"]
    assert all("doctor/lr_small" not in line for line in lines(tmp_path / "r")[:2])


def test_a_rate_that_ends_at_zero_is_not_too_small() -> None:
    small = {"train/update_ratio": 1e-9, "train/grad_norm": 1.0}
    assert name(Doctor(), [small | {"progress": 0.95}] * 5) == []
    assert name(Doctor(), [small | {"progress": 0.5}] * 5) == ["lr_small"]
    rounding = [small | {"progress": 0.5, "train/grad_norm": 2e-12}] * 5
    assert name(Doctor(), rounding) == [], "no rate makes much of a gradient that is rounding"


def test_an_update_is_measured_on_the_first_step_and_not_on_tables(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    doctor, optimizer = Doctor(), torch.optim.Adam([weight], lr=0.1)
    doctor.attach(optimizer)
    weight.grad = torch.ones(2)
    for _ in range(2):  # Adam's first step is lr in every element
        optimizer.step()
    assert doctor.update == pytest.approx([0.1 * 2**0.5, 5.0], rel=1e-5)
    assert "train/update_ratio" not in "".join(
        alarms(tmp_path / "r", "algo=q_learning", "env=gridworld", "iterations=3")
    )
    assert "train/update_ratio" not in lines(tmp_path / "r")[0]


WITH_ADAM = """
from rlkit.algorithms.q_learning import *


class Adam(QLearning):
    def __init__(self, *given):
        super().__init__(*given)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.01)


make = Adam
"""


def test_a_first_step_from_zero_has_no_ratio(tmp_path: Path) -> None:
    file = tmp_path / "adam.py"
    file.write_text(WITH_ADAM)
    alarms(tmp_path / "r", f"algo={file}", "env=gridworld", "iterations=8")
    ratios = [line.get("train/update_ratio", 0.0) for line in lines(tmp_path / "r")]
    assert 0.1 < max(ratios) < 1


@pytest.mark.slow
def test_steps_that_are_nearly_all_clipped_are_named(tmp_path: Path) -> None:
    memorised = ["env.rows=1", "algo.horizon=2", "algo.epochs=100", "algo.lr=3e-3", "algo.clip=1e-6"]
    found = alarms(tmp_path / "r", "algo=ppo", "env=cartpole", "iterations=6", "algo.minibatches=1", *memorised)
    assert "of the steps are clipped" in found["clip_fraction"]


@pytest.mark.slow
def test_importance_weights_that_come_down_to_a_few_steps_are_named(tmp_path: Path) -> None:
    far = ["algo.ratio=sum", "algo.lr=1e-2", "algo.clip_high=100", "algo.clip_low=1"]
    found = alarms(tmp_path / "r", "algo=grpo", "env=cartpole", "iterations=5", *far)
    assert "lower algo.epochs or algo.lr" in found["ess"]


@pytest.mark.parametrize("weights, share", [([1.0] * 8, 1.0), ([8.0] + [0.0] * 7, 1 / 8), ([3.0, 1.0], 0.8)])
def test_the_effective_sample_size_is_kishs(weights: list[float], share: float) -> None:
    ratio = torch.tensor(weights)
    found = of_ratios([[(part, torch.ones(len(part)) > 0) for part in (ratio[:1], ratio[1:])]], Parrot())
    assert float(found["train/ess"]) == pytest.approx(share)


def test_a_ratio_that_is_an_average_is_a_metric_like_any_other() -> None:
    meter, mask = Meter(), torch.ones(2, 3, dtype=torch.bool)
    meter.begin()
    meter.add({"ratio": torch.tensor(0.5)}, mask)
    assert meter.ratios == [[]] and meter.read() == {"ratio": 0.5}
    meter.add({"ratio": torch.ones(2, 3)}, mask)
    assert len(meter.ratios[0]) == 1 and meter.read() == {}


def test_a_sampler_that_disagrees_with_the_trainer_is_named_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    recorded = Actor.record
    monkeypatch.setattr(Actor, "record", lambda self, batch: {"log_prob": recorded(self, batch)["log_prob"] * 0.9})
    found = alarms(tmp_path / "r", "algo=grpo", "env=cartpole", "iterations=1")
    assert "off 1 by 0.0" in found["first_ratio"] and "temperature" in found["first_ratio"]


def test_groups_and_episodes_of_equal_score_are_named(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", "algo=grpo", "env=cartpole", "iterations=5", "env.step_limit=3")
    assert "in each of 4 groups" in found["equal_groups"] and "algo.group" in found["equal_groups"]
    assert "episodes so far scored 3, so no score tells what is better" in found["constant_reward"]


def test_a_few_episodes_are_no_constant_reward() -> None:
    same = {"highest": -200.0, "lowest": -200.0, "progress": 0.5}
    assert name(Doctor(), [same | {"episodes": 9.0}] * 5) == []
    assert name(Doctor(), [same | {"episodes": 10.0}] * 5) == ["constant_reward"]
    assert name(Doctor(), [same | {"episodes": 400.0, "progress": 0.1}] * 5) == []


def test_groups_that_all_reach_the_best_score_are_solved_not_sick() -> None:
    doctor = Doctor()
    returns = [(20.0, 0.5), (200.0, 0.2), *[(500.0, 1.0)] * 5]
    assert name(doctor, [{"rollout/return": score, "rollout/equal_groups": share} for score, share in returns]) == []
    assert name(doctor, [{"rollout/return": 30.0, "rollout/equal_groups": 1.0, "groups": 4.0}] * 3) == ["equal_groups"]


def test_a_policy_that_stopped_exploring_without_having_learned_is_named(tmp_path: Path) -> None:
    keys = ["algo=reinforce", "env=cartpole", "algo.lr=1", "iterations=12"]
    assert "algo.entropy_coef" in alarms(tmp_path / "r", *keys)["entropy"]


@pytest.mark.parametrize("dimensions, entropies", [(0.0, [0.69, 0.1, 0.001]), (2.0, [2.84, 0.0, -7.0])])
def test_a_policy_that_is_sure_of_what_works_is_healthy(dimensions: float, entropies: list[float]) -> None:
    looks = [
        {"train/entropy": entropies[0], "rollout/return": 20.0},
        {"train/entropy": entropies[1], "rollout/return": 300.0},
    ]
    sure = [{"train/entropy": entropies[2], "dimensions": dimensions}] * 4
    start = [look | {"dimensions": dimensions} for look in looks]
    assert name(Doctor(), start + [look | {"rollout/return": 480.0} for look in sure]) == []
    assert name(Doctor(), start + [look | {"rollout/return": 9.0} for look in sure]) == ["entropy"]


def test_a_critic_worse_than_a_constant_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        ActorCritic, "worth", lambda self, x: 50 * torch.sin(1e4 * x.sum(-1)) + 0 * self.critic(x)[..., 0]
    )
    keys = ["algo=ppo", "env=cartpole", "iterations=16", "algo.gae_lambda=1", "algo.epochs=1"]
    found = alarms(tmp_path / "r", *keys)
    assert "worse than a constant" in found["explained_variance"]


def test_explained_variance_and_the_share_of_one_step_are_what_they_say() -> None:
    mask = torch.tensor([[True, True, True, True, False]])
    data = {"advantage": torch.tensor([[0.0, 0.0, 0.0, 4.0, 9.0]]), "mask": mask}
    data |= {"return": torch.tensor([[1.0, 2.0, 3.0, 4.0, 9.0]]), "value": torch.tensor([[1.0, 2.0, 3.0, 3.0, 0.0]])}
    found = of_credit(TensorDict(data, batch_size=[1]))
    assert float(found["advantage"]) == 4 and float(found["peak"]) == pytest.approx(0.75)
    assert float(found["train/explained_variance"]) == pytest.approx(1 - 0.25 / (5 / 3))


def test_of_equal_advantages_no_step_has_a_share_of_the_variance() -> None:
    data = {"advantage": torch.full((1, 4), 5000.0), "mask": torch.ones(1, 4, dtype=torch.bool)}
    found = of_credit(TensorDict(data, batch_size=[1]))
    assert float(found["peak"]) == 0
    assert "has 0% of their variance" in CHECKS["advantage"].says.format_map(found)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_what_rounding_leaves_of_equal_returns_is_not_explained(score: float) -> None:
    value = torch.linspace(-0.3, 0.7, 64).unsqueeze(0)
    advantage = (score - value) / 3 + (score - value) * 2 / 3
    data = {"advantage": advantage, "value": value, "return": advantage + value, "mask": value > -1}
    assert float(data["return"].std()) > 0
    assert math.isnan(float(of_credit(TensorDict(data, batch_size=[1]))["train/explained_variance"]))
    apart = {**data, "return": data["return"] + 1e-4 * torch.arange(64)}
    assert float(of_credit(TensorDict(apart, batch_size=[1]))["train/explained_variance"]) < 0


def test_what_is_given_once_a_row_holds_for_each_of_its_steps() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True]])
    row = {"advantage": torch.tensor([1.0, -2.0]), "return": torch.tensor([3.0, 5.0]), "value": torch.full((2,), 2.0)}
    each = {key: x.unsqueeze(-1).expand(2, 3) for key, x in row.items()}
    found, same = (of_credit(TensorDict({**data, "mask": mask}, batch_size=[2])) for data in (row, each))
    assert found == same and float(found["advantage"]) == 2


def test_a_critic_that_has_nothing_to_explain_is_left_alone() -> None:
    bad = {"train/explained_variance": -5.0, "progress": 0.5}
    assert name(Doctor(), [bad | {"spread": 0.01}] * 20) == []
    assert name(Doctor(), [bad | {"spread": 0.5}] * 20) == ["explained_variance"]
    nothing = {"train/explained_variance": -0.02, "progress": 0.5, "spread": 0.5}
    assert name(Doctor(), [nothing] * 20) == [], "no observation tells what returns follow"
    seen = bad | {"spread": 0.5, "lowest": 9.0, "highest": 500.0}
    assert name(Doctor(), [seen | {"rollout/return": 470.0}] * 20) == []
    assert name(Doctor(), [seen | {"rollout/return": 20.0}] * 20) == ["explained_variance"]


def test_advantages_that_explode_are_named(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", "algo=a2c", world(tmp_path, reward="1e6 * action"), "iterations=4")
    assert "algo.normalize_reward" in found["advantage"]


def test_a_policy_that_is_far_from_its_start_is_named(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", "algo=grpo", "env=cartpole", "iterations=5", "algo.lr=1", "algo.kl_coef=0.1")
    assert "algo.kl_coef" in found["ref_kl"]


def test_an_observation_outside_its_space_is_named_with_its_component(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", "algo=ppo", world(tmp_path, second="float(self.t)"), "iterations=4")
    assert "component 1 of the observation leaves its space by 8" in found["observation"]


def test_a_discrete_observation_outside_its_space_is_seen() -> None:
    env = SimpleNamespace(observation_space=Discrete(4), action_space=Discrete(2))
    for states, by in (([[0, 3]], 0), ([[0, 5]], 2), ([[-1, 2]], 1)):
        seen = {"observation": torch.tensor(states), "mask": torch.ones(1, 2, dtype=torch.bool)}
        rollout = TensorDict(seen, batch_size=[1])
        assert int(of_observations(rollout, env)["outside"]) == by


FAR = [((5, 6), True), ((-1000, 1000), True), ((-0.001, 0.001), True), ((-1, 1), False), ((-2, 2), False)]


@pytest.mark.parametrize("bounds, told_of", FAR)
def test_actions_far_from_their_space_are_named_and_not_the_reward(
    tmp_path: Path, bounds: tuple[float, float], told_of: bool
) -> None:
    actions, reward = f"Box(*{bounds}, (1,), np.float32)", f"-abs(round(float(action[0]) / {bounds[1]}))"
    boxed = world(tmp_path, actions=actions, reward=reward)
    found = alarms(tmp_path / "r", "algo=ppo", boxed, "iterations=5", "algo.minibatches=1", "algo.epochs=1")
    assert ("action_space" in found) == told_of
    if told_of:
        assert f"component 0 of the action space is [{bounds[0]:.3g}, {bounds[1]:.3g}]" in found["action_space"]
        assert "RescaleAction" in found["action_space"] and "constant_reward" not in found


def test_a_component_with_nothing_to_choose_is_not_looked_at() -> None:
    actions = torch.tensor([[[0.1, 0.0, -0.9], [-0.2, 0.3, 0.8]] * 16])
    rollout = TensorDict({"action": actions, "mask": torch.ones(1, 32, dtype=torch.bool)}, batch_size=[1, 32])
    fixed = np.array([[0, -1, -1], [0, 1, 1]], np.float32)
    found = of_actions(rollout, SimpleNamespace(action_space=Box(*fixed)))
    assert int(found["action_component"]) == 1 and float(found["reach"]) == pytest.approx(0.15)
    assert of_actions(rollout, SimpleNamespace(action_space=Box(0, 0, (3,)))) == {}
    assert of_actions(rollout[:, :31], SimpleNamespace(action_space=Box(*fixed))) == {}  # too few to tell


def test_a_policy_that_learned_to_act_at_a_bound_is_left_alone() -> None:
    look = {"saturated": 1.0, "reach": 0.01, "rollout/return": 10.0}
    healthy = [{"saturated": 0.3, "reach": 2.0, "rollout/return": 0.0}, *[look] * 3, *[{"saturated": 1.0}] * 3]
    assert name(Doctor(), healthy) == []
    assert name(Doctor(), [look] * 3) == ["action_space"]
    assert "if it is that, or with sac and td3, lower algo.lr" in CHECKS["action_space"].says


def test_a_run_that_ends_before_its_first_update_is_named(tmp_path: Path) -> None:
    keys = ["algo=dqn", "env=cartpole", "env_steps=300"]
    assert "lower algo.warmup_steps" in alarms(tmp_path / "r", *keys)["no_update"]
    assert "no_update" not in alarms(tmp_path / "s", *keys, "algo.warmup_steps=290")
    assert run.main([f"resume={tmp_path / 'r'}", "env_steps=1100"]) == 0
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["alarms"] == [], "it has learned since"


@pytest.mark.parametrize(
    "broken, words",
    [
        ({"second": "float('nan')"}, "component 1 of next_observation"),
        ({"reward": "float('inf')"}, "the return of an evaluation's"),
    ],
)
def test_a_number_that_is_not_finite_ends_in_one_line(tmp_path: Path, capsys: Any, broken: Any, words: str) -> None:
    keys = ["algo=ppo", world(tmp_path, **broken), "iterations=2", "threads=1", "evaluation_episodes=2"]
    assert run.main([*keys, f"out={tmp_path / 'r'}"]) == 1
    error = capsys.readouterr().err
    assert words in error and "a world of two numbers" in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
@pytest.mark.slow
def test_a_resumed_run_neither_repeats_nor_forgets_an_alarm(tmp_path: Path, monkeypatch: Any, cut: int) -> None:
    keys = [*PPO[:-1], "iterations=5", "algo.lr=1e-12", "algo.epochs=1"]
    whole = alarms(tmp_path / "whole", *keys)
    written = Log.iteration

    def interrupt(self: Log, iteration: int, *rest: Any) -> None:
        written(self, iteration, *rest)
        if iteration == cut:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "iteration", interrupt)
        assert ("lr_small" in alarms(tmp_path / "cut", *keys)) == (cut >= 3)
    assert run.main([f"resume={tmp_path / 'cut'}"]) == 0
    assert told(tmp_path / "cut") == whole and "lr_small" in whole
    for one, other in zip(lines(tmp_path / "whole"), lines(tmp_path / "cut"), strict=True):
        assert [pair for pair in one.items() if not pair[0].startswith(("time/", "seconds"))] == [
            pair for pair in other.items() if not pair[0].startswith(("time/", "seconds"))
        ]


def test_an_alarm_is_printed_once_and_needs_its_looks_in_a_row() -> None:
    doctor, said = Doctor(), []
    for kl in (2.0, 2.0, 0.1, 2.0, 2.0, 2.0, 2.0):
        doctor.name({}, {"train/kl": kl}, len(said), lambda *words: said.append(words))
    assert [name for name, _ in said] == ["kl"] and "2 nats" in said[0][1]


def test_what_was_not_measured_alarms_nobody() -> None:
    assert not any(check.wrong(Numbers()) for check in CHECKS.values())


HEALTHY = [
    ["algo=a2c", "env=cartpole", "env_steps=40000"],
    ["algo=reinforce", "env=cartpole", "env_steps=40000"],
    ["algo=grpo", "env=cartpole", "env_steps=100000"],
    ["algo=gspo", "env=cartpole", "env_steps=100000"],
    ["algo=dqn", "env=cartpole", "env_steps=10000"],
    ["algo=ppo", "env=pendulum", "env_steps=50000"],
    ["algo=q_learning", "env=gridworld", "env_steps=50000"],
    ["algo=td", "env=gridworld", "env_steps=50000"],
    ["algo=value_iteration", "env=gridworld"],
]


@pytest.mark.slow
@pytest.mark.parametrize("keys", HEALTHY, ids=lambda keys: " ".join(keys[:2]))
def test_a_pair_with_its_own_settings_names_nothing(tmp_path: Path, keys: list[str]) -> None:
    assert alarms(tmp_path / "r", *keys) == {}
