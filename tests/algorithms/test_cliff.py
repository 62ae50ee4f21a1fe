"""The best policy that keeps exploring, and the cliff of Sutton & Barto, example 6.6: each method nears its limit."""

from functools import cache
from itertools import product

import pytest
import torch
from support.fakes import algorithm, environment, iterate, set_progress
from torch import Tensor
from torch.testing import assert_close

from rlkit import exact, policies
from rlkit.meter import finished

# The best of the policies that keep exploring


def test_the_soft_optimum_is_the_best_of_all_soft_policies() -> None:
    draw = torch.Generator().manual_seed(0)
    transition = torch.rand(4, 2, 4, generator=draw, dtype=torch.float64)
    reward = torch.randn(4, 2, generator=draw, dtype=torch.float64)
    start, terminal = torch.full((4,), 0.25, dtype=torch.float64), torch.arange(4) == 3
    model = exact.Model(transition / transition.sum(-1, keepdim=True), reward, terminal, start)
    for gamma, epsilon in product((0.6, 0.99, 1.0), (0.0, 0.3, 1.0)):
        soft = [exact.epsilon_greedy(torch.eye(2)[list(table)], epsilon) for table in product(range(2), repeat=4)]
        brute = torch.stack([exact.policy_values(model, policy, gamma) for policy in soft]).amax(0)
        assert_close(exact.soft_optimal_values(model, gamma, epsilon), brute)


def test_epsilon_greedy_shares_by_hand() -> None:
    q = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    assert_close(exact.epsilon_greedy(q, 0.4), torch.tensor([[0.1, 0.7, 0.1, 0.1]]))  # the first of a tie


# Sutton & Barto, example 6.6: the cliff, ε = 0.1, nothing discounted

EPSILON, START = 0.1, 36


@cache
def limits() -> dict[str, Tensor]:
    """Q* and the optimal ε-soft Q, and what their ε-greedy policies are worth."""
    model = environment("cliffwalking").model()
    q = exact.q_values(model, exact.optimal_values(model, 1.0), 1.0)
    soft = exact.q_values(model, exact.soft_optimal_values(model, 1.0, EPSILON), 1.0)
    behavior = [exact.policy_values(model, exact.epsilon_greedy(x, EPSILON), 1.0) for x in (q, soft)]
    return {"q_learning": q, "sarsa": soft, "q_learning value": behavior[0], "sarsa value": behavior[1]}


def path(q: Tensor) -> list[int]:
    """The cells of the greedy way from the start."""
    move = environment("cliffwalking").model().transition.argmax(-1)
    cells = [START]
    while cells[-1] != 47 and len(cells) < 50:
        cells.append(int(move[cells[-1], q[cells[-1]].argmax()]))
    return cells


def test_the_two_limits_are_the_edge_and_the_way_one_row_above_it() -> None:
    found = limits()
    assert path(found["q_learning"]) == [START, *range(24, 36), 47]  # 13 steps along the edge
    safe = path(found["sarsa"])
    assert len(safe) - 1 == 15 and set(range(14, 22)) <= set(safe)  # one row further up for most of the way
    assert float(found["q_learning"][START].max()) == -13.0
    # Along the edge one step in forty falls: exploring costs more there than two steps do.
    assert float(found["q_learning value"][START]) == pytest.approx(-45.8, abs=0.01)
    assert float(found["sarsa value"][START]) == pytest.approx(-20.7, abs=0.01)


def test_the_value_of_exploring_along_the_edge_is_what_playing_earns() -> None:
    env = environment("cliffwalking", step_limit=5000)
    policy = policies.Table(48, 4, seed=0)
    with torch.no_grad():
        policy.q.weight.copy_(limits()["q_learning"])
    policy.epsilon = EPSILON
    score = env.evaluate(policy, 1000, "test", greedy=False).score
    assert float(score.mean()) == pytest.approx(
        float(limits()["q_learning value"][START]), abs=4 * float(score.std()) / 1000**0.5
    )


@cache
def learned(name: str, iterations: int = 1200) -> tuple[Tensor, float]:
    """Q after learning on the cliff, and the mean return of the episodes of the second half, explored."""
    env = environment("cliffwalking", rows=64)
    lr = {"lr": 1.0} if name == "q_learning" else {"lr": 0.3, "schedule": "linear", "lr_end": 0.02}
    algo = algorithm(name, env, gamma=1.0, epsilon=EPSILON, epsilon_end=EPSILON, **lr)
    scores: list[float] = []
    for i in range(iterations):
        set_progress(algo, i, iterations)
        rollout = iterate(algo, env)
        scores += [score for score, _ in finished(rollout)] if i > iterations // 2 else []
    return algo.policy.q.weight.detach().double(), sum(scores) / len(scores)


@pytest.mark.slow
def test_q_learning_learns_the_edge_whatever_it_does_meanwhile() -> None:
    q, _ = learned("q_learning")
    assert path(q) == path(limits()["q_learning"])
    edge = path(q)[:-1]
    assert_close(q[edge].amax(-1), limits()["q_learning"][edge].amax(-1), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tolerance"), [("sarsa", 1.5), ("expected_sarsa", 0.5)])
def test_sarsa_learns_what_its_own_exploring_costs(name: str, tolerance: float) -> None:
    q, _ = learned(name)
    value = float((exact.epsilon_greedy(q, EPSILON) * q).sum(-1)[START])
    assert value == pytest.approx(float(limits()["sarsa value"][START]), abs=tolerance)
    model = environment("cliffwalking").model()
    worth = exact.policy_values(model, exact.epsilon_greedy(q, EPSILON), 1.0)[START]
    assert float(worth) > float(limits()["sarsa value"][START]) - 2.0  # the edge would be 25 below
    assert not set(path(q)) & set(range(25, 35))


@pytest.mark.slow
def test_sarsas_online_return_is_the_better_one_and_each_is_near_its_limit() -> None:
    online = {name: learned(name)[1] for name in ("q_learning", "sarsa", "expected_sarsa")}
    assert min(online["sarsa"], online["expected_sarsa"]) > online["q_learning"] + 15
    assert online["q_learning"] == pytest.approx(float(limits()["q_learning value"][START]), abs=4)
    assert online["expected_sarsa"] == pytest.approx(float(limits()["sarsa value"][START]), abs=2)
