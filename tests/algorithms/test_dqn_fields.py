"""DQN with every combination of its fields: loss, gradient and priorities one element at a time, and exact resume."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fakes import Ring, Walk, algorithm, cartpole, control, iterate, parameters
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies, progress
from rlkit.buffers.prioritized import EPS, Prioritized

COMBINATIONS = [
    {"double": a, "dueling": b, "n_step": n, "prioritized": d, "tau": tau}
    for (a, b, n, d), tau in zip(
        product([False, True], [False, True], [1, 3], [False, True]), [None, 0.25, 0.25, None] * 4, strict=True
    )
]


def named(config: dict[str, Any]) -> str:
    return (
        "-".join(key if x is True else f"{key}={x}" for key, x in config.items() if x is True or (x or 1) != 1)
        or "plain"
    )


def small(config: dict[str, Any]) -> tuple[Any, Any]:
    env = cartpole(2, step_limit=7)
    fixed = {"steps": 4, "batch_size": 6, "updates": 2, "warmup_steps": 5, "capacity": 37, "sync_every": 3}
    return algorithm("dqn", env, policies.Network((8, 8)), **fixed, lr=0.01, gamma=0.9, **config), env


def reference(algo: Any, batch: TensorDict) -> tuple[Tensor, Tensor]:
    """The loss and |δ|, one element at a time, from the networks, the tree's leaves and the equations."""
    c, each = algo.config, []
    for i in range(len(batch)):
        q = algo.policy(batch["observation"][i])[batch["action"][i]]
        successor = batch["next_observation"][i]
        chooser = algo.policy if c.double else algo.target
        ahead = algo.target(successor)[chooser(successor).argmax()].detach()
        each.append(q - batch["reward"][i] - batch["discount"][i] * ahead * (not batch["terminated"][i]))
    delta, importance = torch.stack(each), torch.ones(len(batch))
    if c.prioritized:
        priority = torch.from_numpy(algo.buffer.tree.priority.copy())
        probability = (priority / priority.sum())[batch["index"]]
        importance = (len(algo.buffer) * probability) ** -algo.buffer.beta
        importance = importance / importance.max()
    huber = torch.where(delta.abs() <= 1, 0.5 * delta**2, delta.abs() - 0.5)
    return (huber * importance.float()).mean(), delta.detach().abs()


def minibatches(algo: Any, env: Any, iterations: int) -> Iterator[TensorDict]:
    """What the loop does around the loss, with the loss left to whoever iterates."""
    for k in range(iterations):
        algo.progress = k / iterations
        with torch.no_grad():
            algo.buffer.extend(algo.credit(algo.rollout(env)))
        for batch in algo.buffer:
            algo.optimizer.zero_grad()
            yield batch
            algo.optimizer.step()


@pytest.mark.parametrize("config", COMBINATIONS, ids=named)
def test_every_combination_has_the_loss_and_the_gradient_of_its_equation(config: dict[str, Any]) -> None:
    algo, env = small(config)
    seen = 0
    for batch in minibatches(algo, env, 8):
        expected, error = reference(algo, batch)
        theirs = torch.autograd.grad(expected, list(algo.policy.parameters()))
        loss, metrics = algo.loss(batch)
        loss.backward()
        assert_close(loss, expected)
        assert_close(metrics["td_error"], error)
        assert_close([p.grad for p in algo.policy.parameters()], list(theirs))
        if config["prioritized"]:
            algo.after_step([(batch, metrics)])
            found = torch.from_numpy(algo.buffer.tree.priority[batch["index"]])
            assert_close(found, (error.double() + EPS) ** 0.6, rtol=1e-4, atol=1e-6)
        seen += 1
    assert seen == 2 * 8 - 2 * (config["n_step"] == 3)  # with n = 3 the first rollout leaves too few to be warm


@pytest.mark.parametrize("config", COMBINATIONS, ids=named)
def test_every_combination_resumes_with_the_same_bits(config: dict[str, Any], tmp_path: Path) -> None:
    algo, env = small(config)
    for _ in range(7):
        iterate(algo, env)
    progress.save(tmp_path, algo, env, progress.Progress())
    resumed, second = small(config)
    progress.restore(tmp_path, resumed, second)
    for _ in range(5):
        iterate(algo, env)
        iterate(resumed, second)
    assert torch.equal(parameters(resumed.policy), parameters(algo.policy))
    assert torch.equal(parameters(resumed.target), parameters(algo.target))
    assert resumed.buffer.seen == algo.buffer.seen == 2 * (4 * 12 - (config["n_step"] - 1))


def test_the_importance_weights_are_annealed_over_the_run() -> None:
    algo, env = small({"prioritized": True, "beta": 0.5})
    found = []
    for algo.progress in (0.0, 0.5, 1.0):
        iterate(algo, env)
        found.append(algo.buffer.beta)
    assert found == [0.5, 0.75, 1.0]
    assert not isinstance(small({})[0].buffer, Prioritized)


# Learning

PROBES = [{}, {"n_step": 3}, {"prioritized": True}, {"double": True, "dueling": True, "n_step": 3, "prioritized": True}]


@pytest.mark.parametrize("config", PROBES, ids=named)
@pytest.mark.slow
def test_a_time_limit_is_no_end_so_the_value_of_the_ring_is_that_of_an_infinite_run(config: dict[str, Any]) -> None:
    env = control(Ring, rows=2, limit=5)
    given = {"steps": 4, "updates": 4, "batch_size": 32, "warmup_steps": 16, "gamma": 0.8, "lr": 0.05, "tau": 0.1}
    algo = algorithm("dqn", env, policies.Network(hidden=()), **given, **config)
    algo.policy.epsilon = 1.0
    for _ in range(80):
        iterate(algo, env)
    assert_close(algo.policy(torch.arange(4)), torch.full((4, 2), 5.0), rtol=0.02, atol=0)  # 1 / (1 − γ)


@pytest.mark.parametrize("config", PROBES, ids=named)
def test_dqn_walks_the_shortest_way(config: dict[str, Any]) -> None:
    env = control(Walk, rows=2, limit=8)
    given = {"steps": 4, "updates": 4, "batch_size": 32, "warmup_steps": 16, "gamma": 0.5, "lr": 0.03, "tau": 0.1}
    algo = algorithm("dqn", env, policies.Network(hidden=()), **given, **config)
    for k in range(80):
        algo.progress = k / 80
        iterate(algo, env)
    q = algo.policy(torch.arange(6))
    assert q.argmax(-1)[1:5].tolist() == [1, 1, 1, 1]
    assert_close(q[1:5, 1], torch.tensor([0.125, 0.25, 0.5, 1.0]), rtol=0, atol=0.1)
