"""SAC and TD3: the values and the temperature that they end at, the delay of the actor, and what is refused."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from support.boxes import continuous, drawn_batch
from support.fakes import Walk, algorithm, control, iterate, pendulum
from tensordict import TensorDict
from torch import nn
from torch.testing import assert_close

from rlkit import policies, spaces
from rlkit.api import UserError
from rlkit.loop import learn
from rlkit.meter import Meter


def single(batch: TensorDict) -> TensorDict:
    return batch.apply(lambda x: x.float() if x.is_floating_point() else x)


# Fixed points and limits


@pytest.mark.slow
def test_the_soft_values_of_discrete_actions_are_exact() -> None:
    """One state, two actions, each ends the episode: π is softmax(Q / α), which the loss of the actor is least at."""
    env = control(Walk, 1, 6)
    algo = algorithm("sac", env, policies.Network(hidden=()), temperature=0.5, learn_temperature=False, lr=0.05)
    state = torch.full((64,), 3)
    data = {"observation": state, "next_observation": state, "action": torch.arange(64) % 2}
    data |= {
        "reward": torch.where(torch.arange(64) % 2 == 1, 1.0, 0.25),
        "terminated": torch.ones(64, dtype=torch.bool),
    }
    data |= {"discount": torch.full((64,), 0.9), "weight": torch.full((64,), 1 / 64)}
    data |= {"mask": torch.ones(64, dtype=torch.bool)}
    algo.buffer = [TensorDict(data, batch_size=[64])] * 1500
    learn(algo, Meter())
    q = algo.policy.all_actions(state[:1])
    assert_close(q, torch.tensor([[[0.25, 1.0]]]).expand(2, 1, 2), atol=1e-3, rtol=0)
    probability = algo.policy.choices(state[:1]).probability[0]
    assert_close(probability, torch.tensor([0.25, 1.0]).div(0.5).softmax(-1), atol=5e-3, rtol=0)


def test_the_temperature_falls_while_there_is_more_entropy_than_wanted() -> None:
    for target, falls in ((-20.0, True), (20.0, False)):
        algo = algorithm("sac", continuous(), policies.Network(), target_entropy=target, lr=0.01)
        algo.buffer = [single(drawn_batch(Box(-1, 1, (2,))))]
        learn(algo, Meter())
        assert (float(algo.temperature()) < 1.0) is falls


def test_the_entropy_that_is_wanted_is_one_of_the_actions_that_are_allowed() -> None:
    env = control(Walk, 1, 6)
    env.observation_space = Dict({"observation": Discrete(2), "action_mask": MultiBinary(20)})
    env.action_space = Discrete(20)
    allowed = [np.arange(20) < n for n in (1, 4, 20)]
    seen = [spaces.one(env.observation_space, {"observation": 0, "action_mask": mask}) for mask in allowed]
    policy = policies.Network().twin_critics(env)
    found = policy.entropy_target(policy.choices(torch.from_numpy(np.stack(seen))))
    assert_close(found, 0.5 * torch.tensor([1.0, 4.0, 20.0]).log())


def test_the_target_critics_of_sac_follow_the_critics() -> None:
    algo = algorithm("sac", continuous(), policies.Network((8,)), tau=0.25, lr=0.1)
    before = [p.clone() for p in algo.target.critics.parameters()]
    algo.buffer = [single(drawn_batch(Box(-1, 1, (2,))))]
    learn(algo, Meter())
    for old, target, online in zip(before, algo.followers, algo.critics, strict=True):
        assert_close(target, old + 0.25 * (online - old))
        assert not torch.equal(online, old)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_the_first_steps_are_random_and_importance_weights_are_annealed(name: str) -> None:
    env, played = pendulum(1), []
    algo = algorithm(name, env, policies.Network((8,)), warmup_steps=3, prioritized=True, beta=0.5, batch_size=2)
    for algo.progress in (0.0, 0.25, 0.5, 1.0):
        iterate(algo, env)
        played.append((algo.policy.epsilon, algo.buffer.beta))
    assert played == [(1.0, 0.5), (1.0, 0.625), (1.0, 0.75), (0.0, 1.0)]


# The delayed actor


def test_while_the_actor_waits_the_loss_of_td3_is_that_of_the_critics() -> None:
    algo = algorithm("td3", continuous(), policies.Network((8,)), policy_delay=2)
    batch = single(drawn_batch(Box(-1, 1, (2,))))
    loss, metrics = algo.loss(batch)
    assert_close(loss, (metrics["critic_loss"] * batch["weight"]).sum())
    assert "actor_loss" not in metrics


@pytest.mark.parametrize("flat", [True, False])
def test_the_actor_and_the_targets_of_td3_wait(flat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not flat:
        monkeypatch.setattr("rlkit.policies.optimizers.can_be_flat", lambda _: False)
    algo = algorithm("td3", continuous(), policies.Network(), policy_delay=3)
    seen = []
    for _ in range(6):
        parts = (algo.policy.actor, algo.policy.critics, algo.target)
        before = [nn.utils.parameters_to_vector(part.parameters()).clone() for part in parts]
        algo.buffer = [single(drawn_batch(Box(-1, 1, (2,))))]
        learn(algo, Meter())
        after = [nn.utils.parameters_to_vector(part.parameters()) for part in parts]
        seen.append([not torch.equal(a, b) for a, b in zip(before, after, strict=True)])
    assert seen == [[False, True, False]] * 2 + [[True, True, True]] + [[False, True, False]] * 2 + [[True, True, True]]
    steps = {float(algo.optimizer.state[p]["step"]) for p in algo.policy.actor.parameters()}
    assert steps == {2.0}


def test_a_group_that_is_frozen_is_skipped_as_torch_skips_it() -> None:
    """One group learns in each second step only: the flat optimizer against torch's own."""
    found = []
    for kind in (policies.flat.FlatAdamW, torch.optim.AdamW):
        parts = [nn.Parameter(torch.linspace(-1, 1, 5)), nn.Parameter(torch.linspace(0, 1, 4))]
        optimizer = kind([{"params": [p]} for p in parts], lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            parts[1].requires_grad_(step % 2 == 1)
            sum(p.square().sum() for p in parts if p.requires_grad).backward()
            optimizer.step()
        found.append(torch.cat([p.detach() for p in parts]))
    assert_close(*found, rtol=1e-6, atol=1e-6)


# What each learns, and what is refused


@pytest.mark.parametrize("name", ["sac", "td3"])
@pytest.mark.slow
def test_the_best_of_a_line_is_found(name: str) -> None:
    """Reward −(a − 3)² in a box from 0 to 10, one step each."""
    env = continuous(0.0, 10.0, size=1)
    network = policies.Network(hidden=(32,), activation="relu")
    algo = algorithm(name, env, network, lr=5e-3, batch_size=64, updates=1500, warmup_steps=1)
    action = 10 * torch.rand(1000, 1, generator=torch.Generator().manual_seed(0))
    data = {"observation": torch.zeros(1, 1000, 3), "next_observation": torch.zeros(1, 1000, 3)}
    data |= {"action": action[None], "reward": -(action[None, :, 0] - 3).square()}
    data |= dict.fromkeys(("terminated", "done", "mask"), torch.ones(1, 1000, dtype=torch.bool))
    algo.buffer.extend(algo.credit(TensorDict(data, batch_size=[1])))
    learn(algo, Meter())
    with torch.no_grad():
        best = algo.policy.act(torch.zeros(1, 3), greedy=True)
    assert float(best) == pytest.approx(3, abs=0.5)


BOUNDS = "finite bounds, .*an action_space with such bounds, in the environment or in a wrapper of your own$"


@pytest.mark.parametrize(
    ("name", "space", "words"),
    [
        ("td3", Discrete(3), "needs continuous actions and here they are Discrete"),
        ("td3", Box(-1, float("inf"), (2,)), BOUNDS),
        ("sac", Box(-float("inf"), 1, (2,)), BOUNDS),
        ("sac", MultiDiscrete([2, 3]), "MultiDiscrete"),
    ],
)
def test_actions_that_do_not_fit_are_refused(name: str, space: Any, words: str) -> None:
    env = continuous()
    env.action_space = space
    with pytest.raises(UserError, match=words):
        algorithm(name, env, policies.Network())


@pytest.mark.parametrize(
    "space",
    [
        Box(np.array([0.0, 1.0], dtype=np.float32), np.array([1.0, 1.0], dtype=np.float32)),
        Box(np.array([1e8]), np.array([1e8 + 1]), dtype=np.float64),  # one number in float32
        Box(2**24, 2**24 + 1, (1,), np.int64),
    ],
    ids=str,
)
def test_a_box_without_width_is_refused(space: Any) -> None:
    env = continuous()
    env.action_space = space
    with pytest.raises(UserError, match="low below high"):
        algorithm("sac", env, policies.Network())


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_prioritized_steps_and_sums_of_rewards(name: str) -> None:
    env = pendulum(2, 20)
    keys = {"prioritized": True, "n_step": 3, "capacity": 64, "warmup_steps": 16, "batch_size": 8, "steps": 4}
    algo = algorithm(name, env, policies.Network(hidden=(8,)), **keys)
    for _ in range(40):
        iterate(algo, env)
    assert algo.updates == 38 and len(algo.buffer) == 64
    assert algo.buffer.store["discount"].unique().tolist() == pytest.approx([0.99**3, 0.99**2, 0.99])
    assert math.isfinite(algo.buffer.tree.total) and algo.buffer.tree.priority.std() > 0


@pytest.mark.parametrize("make", ["q_network", "twin_critics"])
def test_what_takes_several_choices_is_named(make: str) -> None:
    """Neither is sent to the other, which takes no more of them."""
    env = SimpleNamespace(
        kind="control", observation_space=Box(-1, 1, (2,)), action_space=MultiDiscrete([2, 3]), device="cpu", seed=0
    )
    with pytest.raises(UserError, match=r"MultiDiscrete\(\[2 3\]\); use algo=ppo$"):
        getattr(policies.Network(), make)(env)
