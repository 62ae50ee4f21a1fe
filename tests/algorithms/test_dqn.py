"""DQN: targets by hand and by torchrl, n-step credit over many rollouts, every combination of its fields."""

from itertools import product
from typing import Any

import pytest
import torch
from support.fakes import Walk, algorithm, cartpole, control, iterate, parameters
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies

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
    env = control(Walk, rows=3, limit=max(5, n))
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
