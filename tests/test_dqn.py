"""DQN: targets by hand and by torchrl, n-step credit over many rollouts, every combination of its fields."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import Ring, Walk, algorithm, cartpole, control, iterate, parameters
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies, train
from rlkit.prioritized import EPS, Prioritized

# The loss


def table_dqn(**config: Any) -> Any:
    """On states and without hidden layers a Q-network is a table: Q and the target's by hand."""
    algo = algorithm("dqn", control(Walk, 1, 6), policies.Network(hidden=()), gamma=0.9, **config)
    online = [[0.0, 0.0], [4.0, 0.0], [0.0, 8.5], [1.0, 2.0], [0.0, 3.0], [7.0, 7.0]]
    target = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [50.0, 10.0], [0.0, 0.0], [70.0, 70.0]]
    with torch.no_grad():
        algo.policy.q[-1].weight.copy_(torch.tensor(online).T)
        algo.target.q[-1].weight.copy_(torch.tensor(target).T)
    return algo


@pytest.mark.parametrize(("double", "bootstrap"), [(True, (9.0, 8.1)), (False, (45.0, 40.5))])
def test_the_targets_of_dqn_by_hand(double: bool, bootstrap: tuple[float, float]) -> None:
    algo = table_dqn(double=double)
    # Ongoing 2 → 3, terminated 4 → 5 with a reward, truncated 1 → 3 after two steps of which the second paid 1:
    # γ·10 and γ²·10 with the online choice, γ·50 and γ²·50 with the max
    data = {
        "observation": torch.tensor([2, 4, 1]),
        "action": torch.tensor([1, 1, 0]),
        "reward": torch.tensor([0.0, 1.0, 0.9]),
        "next_observation": torch.tensor([3, 5, 3]),
        "terminated": torch.tensor([False, True, False]),
        "done": torch.tensor([False, True, True]),
        "discount": torch.tensor([0.9, 0.9, 0.81]),
        "mask": torch.ones(3, dtype=torch.bool),
        "weight": torch.tensor([0.5, 0.25, 0.125]),
    }
    batch = TensorDict(data, batch_size=[3])
    loss, metrics = algo.loss(batch)
    delta = torch.tensor([8.5 - bootstrap[0], 3.0 - 1.0, 4.0 - 0.9 - bootstrap[1]])  # Q(s, a) − y
    assert_close(metrics["td_error"], delta.abs())
    huber = torch.where(delta.abs() <= 1, 0.5 * delta**2, delta.abs() - 0.5)
    assert_close(loss, (huber * batch["weight"]).sum())
    loss.backward()
    expected = torch.zeros(2, 6)
    expected[1, 2], expected[1, 4], expected[0, 1] = delta.clamp(-1, 1) * batch["weight"]
    assert_close(algo.policy.q[-1].weight.grad, expected)
    assert all(p.grad is None for p in algo.target.parameters())


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize(("double", "dueling"), list(product([True, False], repeat=2)))
def test_dqn_equals_torchrls_loss_in_value_and_gradient(double: bool, dueling: bool) -> None:
    objectives = pytest.importorskip("torchrl.objectives")
    from torchrl.modules import QValueActor

    algo = algorithm("dqn", cartpole(4), policies.Network(), gamma=0.96875, double=double, dueling=dueling)
    algo.policy.double(), algo.target.double()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in algo.target.parameters():
            p += 0.3 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
    observation, after = torch.randn(2, 32, 4, generator=draw, dtype=torch.float64)
    action, reward = torch.arange(32) % 2, 3 * torch.randn(32, generator=draw, dtype=torch.float64)
    terminated = torch.rand(32, generator=draw) < 0.3
    done = terminated | (torch.rand(32, generator=draw) < 0.3)
    count = torch.randint(1, 5, (32,), generator=draw)  # steps that each reward sums over
    importance = torch.rand(32, generator=draw, dtype=torch.float64)
    data = {"observation": observation, "action": action, "reward": reward, "next_observation": after}
    data |= {"terminated": terminated, "discount": 0.96875 ** count.double(), "weight": importance / 32}
    batch = TensorDict(data, batch_size=[32])

    wrap = {"in_keys": ["observation"], "action_space": "categorical", "spec": None}
    oracle = objectives.DQNLoss(
        QValueActor(module=algo.policy.q, **wrap),
        action_space="categorical",
        loss_function="smooth_l1",
        delay_value=True,
        double_dqn=double,
        use_prioritized_weights=False,
        reduction="none",
    )
    oracle.make_value_estimator(oracle.default_value_estimator, gamma=0.96875)
    target = TensorDict.from_module(QValueActor(module=algo.target.q, **wrap)).data
    oracle.target_value_network_params.data.update_(target)
    successor = {"observation": after, "reward": reward[:, None], "done": done[:, None]}
    successor |= {"terminated": terminated[:, None]}
    played = {"observation": observation, "action": action, "steps_to_next_obs": count[:, None]}
    theirs = oracle(TensorDict(played | {"next": TensorDict(successor, [32])}, [32]))["loss"]
    theirs = (importance * theirs).mean()
    assert_close(algo.loss(batch)[0], theirs)
    reference = torch.autograd.grad(theirs, list(oracle.value_network_params.values(True, True)))
    found = torch.autograd.grad(algo.loss(batch)[0], list(oracle.value_network_params.values(True, True)))
    assert_close(found, reference)


# Dueling


@pytest.mark.parametrize("hidden", [(), (7,), (7, 5), (7, 6, 5)])
def test_dueling_subtracts_the_mean_advantage(hidden: tuple[int, ...]) -> None:
    policy = algorithm("dqn", cartpole(1), policies.Network(hidden), dueling=True).policy.double()
    observation = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    trunk, head = policy.q[:-1], policy.q[-1]
    widths = [x.out_features for x in trunk if isinstance(x, torch.nn.Linear)]
    assert widths == list(hidden[:-1])  # the last hidden layer belongs to the streams
    value, advantage = head.value(trunk(observation)), head.advantage(trunk(observation))
    q = policy(observation)
    assert value.shape == (50, 1) and advantage.shape == q.shape == (50, 2)
    assert_close(q.mean(-1, keepdim=True), value)  # so V is the mean of Q, whatever A's mean is
    assert_close(q[:, 0] - q[:, 1], advantage[:, 0] - advantage[:, 1])
    assert torch.equal(policy.act(observation, greedy=True), advantage.argmax(-1))
    assert len(policy.act(observation, greedy=True).unique()) == 2


def test_the_streams_of_a_dueling_network_share_its_gradient_as_the_equation_says() -> None:
    policy = algorithm("dqn", cartpole(1), policies.Network((7, 5)), dueling=True).policy.double()
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(3, 2, generator=draw, dtype=torch.float64)
    (policy(torch.randn(3, 4, generator=draw, dtype=torch.float64)) * weight).sum().backward()
    head = policy.q[-1]
    assert_close(head.value[-1].bias.grad, weight.sum()[None])  # ∂Q(s, a)/∂V(s) = 1 for every action
    assert_close(head.advantage[-1].bias.grad, (weight - weight.mean(-1, keepdim=True)).sum(0))


# n-step credit


def test_n_step_credit_by_hand() -> None:
    """One row, n = 3, γ = ½, two rollouts of four steps: cut short after step 2, terminated after step 6."""
    algo = algorithm("dqn", control(Walk, 1, 6), policies.Network(), n_step=3, gamma=0.5)
    step = torch.arange(8)
    data = {"observation": step, "action": step % 2, "reward": 2.0**step, "next_observation": 10 + step}
    data |= {"done": (step == 2) | (step == 6), "terminated": step == 6, "mask": step >= 0}
    parts = [TensorDict({key: x[None, i : i + 4] for key, x in data.items()}, [1]) for i in (0, 4)]
    first, second = (algo.credit(part) for part in parts)
    assert (first["observation"].tolist(), second["observation"].tolist()) == ([[0, 1]], [[2, 3, 4, 5]])
    # 0: 1 + 2/2 + 4/4, cut short on its third step; 1: 2 + 4/2, cut short on its second; both bootstrap, by γ³ and γ²
    assert first["reward"].tolist() == [[3.0, 4.0]] and first["discount"].tolist() == [[0.125, 0.25]]
    assert first["next_observation"].tolist() == [[12, 12]] and not first["terminated"].any()
    # 2: 4, cut short; 3: 8 + 16/2 + 32/4 into the next rollout; 4: 16 + 32/2 + 64/4, terminated; 5: 32 + 64/2
    assert second["reward"].tolist() == [[4.0, 24.0, 48.0, 64.0]]
    assert second["discount"].tolist() == [[0.5, 0.125, 0.125, 0.25]]
    assert second["next_observation"].tolist() == [[12, 15, 16, 16]]
    assert second["terminated"].tolist() == [[False, False, True, True]]
    assert second["action"].tolist() == [[0, 1, 0, 1]]


@pytest.mark.parametrize(("steps", "n"), [(4, 1), (4, 3), (3, 4), (1, 5), (2, 9)])
def test_across_rollouts_every_step_is_learned_once_with_its_n_step_transition(steps: int, n: int) -> None:
    env = control(Walk, rows=3, limit=5)
    algo = algorithm("dqn", env, policies.Network(), n_step=n, gamma=0.7, steps=steps, capacity=1000)
    algo.policy.epsilon, played, credited = 1.0, [], []
    for _ in range(60 // steps):
        played.append(env.rollout(algo.policy, steps=steps))
        raw = played[-1].clone()
        credited.append(algo.credit(played[-1]))
        assert all(torch.equal(raw[key], played[-1][key]) for key in raw.keys())  # the loop counts it afterwards
        algo.buffer.extend(credited[-1])
    stream = {key: torch.cat([x[key] for x in played], 1) for key in ("observation", "reward", "action", "done")}
    stream |= {key: torch.cat([x[key] for x in played], 1) for key in ("next_observation", "terminated")}
    found = {key: torch.cat([x[key] for x in credited], 1) for key in (*stream, "discount")}
    ends = set()
    assert found["reward"].shape == (3, 60 - (n - 1)) and len(algo.buffer) == 3 * (60 - (n - 1))
    for row, t in product(range(3), range(60 - (n - 1))):
        total, last = 0.0, t
        for k in range(n):
            last, total = t + k, total + 0.7**k * float(stream["reward"][row, t + k])
            if stream["done"][row, last]:
                break
        assert float(found["reward"][row, t]) == pytest.approx(total, abs=1e-6)
        assert float(found["discount"][row, t]) == pytest.approx(0.7 ** (last - t + 1))
        for key in ("next_observation", "terminated", "done"):
            assert found[key][row, t] == stream[key][row, last]
        for key in ("observation", "action"):
            assert found[key][row, t] == stream[key][row, t]
        ends.add((bool(found["terminated"][row, t]), bool(found["done"][row, t])))
    assert {(True, True), (False, True)} <= ends


# Every combination of the fields

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
            found = torch.from_numpy(algo.buffer.tree.priority[batch["index"]])
            assert_close(found, (error.double() + EPS) ** 0.6, rtol=1e-4, atol=1e-6)
        seen += 1
    assert seen == 2 * 8 - 2 * (config["n_step"] == 3)  # with n = 3 the first rollout leaves too few to be warm


@pytest.mark.parametrize("config", COMBINATIONS, ids=named)
def test_every_combination_resumes_with_the_same_bits(config: dict[str, Any], tmp_path: Path) -> None:
    algo, env = small(config)
    for _ in range(7):
        iterate(algo, env)
    train.save(tmp_path, algo, env, train.Progress())
    resumed, second = small(config)
    train.restore(tmp_path, resumed, second)
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


# The target network and the warm-up


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


@pytest.mark.parametrize("dueling", [False, True])
def test_the_hard_target_is_copied_every_so_many_updates_and_stands_still_between(dueling: bool) -> None:
    online, target = dqn_after(6, sync_every=3, dueling=dueling)
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


# Learning

PROBES = [{}, {"n_step": 3}, {"prioritized": True}, {"double": True, "dueling": True, "n_step": 3, "prioritized": True}]


@pytest.mark.parametrize("config", PROBES, ids=named)
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
