"""Temporal differences: Q-learning on a table to the last bit, and DQN's targets by hand and by torchrl."""

from typing import Any

import pytest
import torch
from fakes import (
    Walk,
    algorithm,
    cartpole,
    control,
    iterate,
    parameters,
)
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import buffers, policies

# Tabular Q-learning


def test_one_step_of_the_loop_is_exactly_the_q_learning_update() -> None:
    env = control(Walk, rows=1, limit=4)
    alpha, gamma = 0.5, 0.5  # powers of two: products are exact, so the comparison can be
    algo = algorithm("q_learning", env, lr=alpha, gamma=gamma, epsilon=1.0, epsilon_end=1.0)
    q, kinds = torch.zeros(6, 2), set()
    for _ in range(300):
        rollout = iterate(algo, env)
        keys = ("observation", "action", "reward", "next_observation", "terminated", "done")
        s, a, r, after, terminated, done = (rollout[key].item() for key in keys)
        target = r + gamma * (0.0 if terminated else q[after].max())
        delta = target - q[s, a]
        q[s, a] += alpha * delta
        assert torch.equal(algo.policy.q.weight.detach(), q)
        kinds.add((terminated, done))
    assert kinds == {(False, False), (False, True), (True, True)}  # ongoing, truncated, terminated
    assert algo.policy.act(torch.arange(1, 5), greedy=True).tolist() == [1, 1, 1, 1]


def test_several_rows_move_their_entries_by_alpha_delta_and_share_the_step_where_they_meet() -> None:
    env = control(Walk, rows=5, limit=4)
    algo = algorithm("q_learning", env, lr=0.5, gamma=0.5, epsilon=1.0, epsilon_end=1.0, steps=2, initial=1.0)
    rollout = iterate(algo, env)
    q, targets = torch.ones(6, 2), {}
    for step in buffers.flatten_steps(rollout):
        target = step["reward"] + 0.5 * (~step["terminated"])  # every Q was 1
        targets.setdefault((int(step["observation"]), int(step["action"])), []).append(float(target))
    assert max(map(len, targets.values())) > 1
    for entry, met in targets.items():
        q[entry] += 0.5 * (sum(met) / len(met) - 1)
    assert_close(algo.policy.q.weight.detach(), q)


# DQN


def table_dqn(**config: Any) -> Any:
    """On states and without hidden layers a Q-network is a table: Q and the target's by hand."""
    algo = algorithm("dqn", control(Walk, 1, 6), policies.Network(hidden=()), gamma=0.9, **config)
    online = [[0.0, 0.0], [4.0, 0.0], [0.0, 8.5], [1.0, 2.0], [0.0, 3.0], [7.0, 7.0]]
    target = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [50.0, 10.0], [0.0, 0.0], [70.0, 70.0]]
    with torch.no_grad():
        algo.policy.q[-1].weight.copy_(torch.tensor(online).T)
        algo.target.q[-1].weight.copy_(torch.tensor(target).T)
    return algo


@pytest.mark.parametrize(("double", "bootstrap"), [(True, 9.0), (False, 45.0)])
def test_the_targets_of_dqn_by_hand(double: bool, bootstrap: float) -> None:
    algo = table_dqn(double=double)
    # Ongoing 2 → 3, terminated 4 → 5 with a reward, truncated 1 → 3: γ·10 with the online choice, γ·50 with the max
    data = {
        "observation": torch.tensor([2, 4, 1]),
        "action": torch.tensor([1, 1, 0]),
        "reward": torch.tensor([0.0, 1.0, 0.0]),
        "next_observation": torch.tensor([3, 5, 3]),
        "terminated": torch.tensor([False, True, False]),
        "done": torch.tensor([False, True, True]),
        "mask": torch.ones(3, dtype=torch.bool),
        "weight": torch.full((3,), 1 / 3),
    }
    loss, metrics = algo.loss(TensorDict(data, batch_size=[3]))
    delta = torch.tensor([8.5 - bootstrap, 3.0 - 1.0, 4.0 - bootstrap])  # Q(s, a) − y
    assert_close(metrics["td_error"], delta.abs())
    huber = torch.where(delta.abs() <= 1, 0.5 * delta**2, delta.abs() - 0.5)
    assert_close(loss, huber.mean())
    loss.backward()
    expected = torch.zeros(2, 6)
    expected[1, 2], expected[1, 4], expected[0, 1] = delta.clamp(-1, 1) / 3
    assert_close(algo.policy.q[-1].weight.grad, expected)
    assert all(p.grad is None for p in algo.target.parameters())


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("double", [True, False])
def test_dqn_equals_torchrls_loss_in_value_and_gradient(double: bool) -> None:
    objectives = pytest.importorskip("torchrl.objectives")
    from torchrl.modules import QValueActor

    algo = algorithm("dqn", cartpole(4), policies.Network(), gamma=0.96875, double=double)
    algo.policy.double(), algo.target.double()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in algo.target.parameters():
            p += 0.3 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
    observation, after = torch.randn(2, 32, 4, generator=draw, dtype=torch.float64)
    action, reward = torch.arange(32) % 2, 3 * torch.randn(32, generator=draw, dtype=torch.float64)
    terminated = torch.rand(32, generator=draw) < 0.3
    done = terminated | (torch.rand(32, generator=draw) < 0.3)
    data = {"observation": observation, "action": action, "reward": reward, "next_observation": after}
    batch = TensorDict(data | {"terminated": terminated, "weight": torch.full((32,), 1 / 32)}, batch_size=[32])

    wrap = {"in_keys": ["observation"], "action_space": "categorical", "spec": None}
    oracle = objectives.DQNLoss(
        QValueActor(module=algo.policy.q, **wrap),
        action_space="categorical",
        loss_function="smooth_l1",
        delay_value=True,
        double_dqn=double,
    )
    oracle.make_value_estimator(oracle.default_value_estimator, gamma=0.96875)
    target = TensorDict.from_module(QValueActor(module=algo.target.q, **wrap)).data
    oracle.target_value_network_params.data.update_(target)
    successor = {"observation": after, "reward": reward[:, None], "done": done[:, None]}
    successor |= {"terminated": terminated[:, None]}
    theirs = oracle(
        TensorDict({"observation": observation, "action": action, "next": TensorDict(successor, [32])}, [32])
    )["loss"]
    assert_close(algo.loss(batch)[0], theirs)
    reference = torch.autograd.grad(theirs, list(oracle.value_network_params.values(True, True)))
    found = torch.autograd.grad(algo.loss(batch)[0], list(oracle.value_network_params.values(True, True)))
    assert_close(found, reference)


def dqn_after(updates: int, **config: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The online and the target parameters before and after each update of the loop."""
    env = cartpole(2)
    algo = algorithm("dqn", env, policies.Network(), steps=4, batch_size=4, warmup_steps=1, lr=0.01, **config)
    online, target = [parameters(algo.policy)], [parameters(algo.target)]
    for _ in range(updates):
        iterate(algo, env)
        online.append(parameters(algo.policy))
        target.append(parameters(algo.target))
    return online, target


def test_the_hard_target_is_copied_every_so_many_updates_and_stands_still_between() -> None:
    online, target = dqn_after(6, sync_every=3)
    for k in range(7):
        assert torch.equal(target[k], online[k - k % 3])
    assert not torch.equal(online[2], online[3])


def test_the_averaged_target_follows_by_tau_times_the_distance() -> None:
    online, target = dqn_after(4, tau=0.25, sync_every=2)
    for k in range(1, 5):
        assert_close(target[k], target[k - 1] + 0.25 * (online[k] - target[k - 1]))
        assert not torch.equal(target[k], online[k])


def test_dqn_plays_without_learning_until_it_is_warm() -> None:
    env = cartpole(2)
    algo = algorithm("dqn", env, policies.Network(), steps=4, batch_size=4, warmup_steps=20)
    before = parameters(algo.policy)
    moved = []
    for _ in range(4):
        iterate(algo, env)
        moved.append(not torch.equal(parameters(algo.policy), before))
    assert moved == [False, False, True, True]  # after 8, 16, 24, 32 steps
