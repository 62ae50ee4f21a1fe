"""Prediction: Monte-Carlo and temporal-difference updates against plain loops, their limits, and the linear solve."""

from typing import Any

import pytest
import torch
from gymnasium.spaces import Discrete
from support.fakes import RaggedText, Ring, Walk, algorithm, cartpole, control, iterate, set_progress
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import exact, policies, progress
from rlkit.api import UserError
from rlkit.control import TabularEnv, from_outcomes
from rlkit.settings import plugins


class Tape:
    """An environment that plays what is written: rollouts of (state, reward) per step, and how each row ends."""

    kind, seed, device, rows, longest = "control", 0, torch.device("cpu"), 1, None
    observation_space, action_space = Discrete(6), Discrete(2)

    def __init__(self, *rollouts: list[list[tuple[int, float]]], after: int = 5, terminated: bool = True) -> None:
        self.rollouts, self.after, self.terminated = iter(rollouts), after, terminated

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        rows = next(self.rollouts)
        time = max(map(len, rows))
        data = {key: torch.zeros(len(rows), time, dtype=torch.long) for key in ("observation", "next_observation")}
        data |= {"action": torch.zeros(len(rows), time, dtype=torch.long), "reward": torch.zeros(len(rows), time)}
        data |= {key: torch.zeros(len(rows), time, dtype=torch.bool) for key in ("mask", "done", "terminated")}
        for b, row in enumerate(rows):
            for t, (state, reward) in enumerate(row):
                last = t + 1 == len(row)
                data["observation"][b, t], data["reward"][b, t], data["mask"][b, t] = state, reward, True
                data["next_observation"][b, t] = self.after if last else row[t + 1][0]
                data["done"][b, t], data["terminated"][b, t] = last, last and self.terminated
        return TensorDict(data, batch_size=[len(rows)])


def walk(rows: int = 32, limit: int = 1000) -> TabularEnv:
    """Five cells in a row between two ends, the right one pays 1: undiscounted V of chance is 1/6, 2/6 ... 5/6."""
    outcomes = {
        s: {a: [(1.0, s, 0.0, True)] if s in (0, 6) else [(1.0, to, float(to == 6), to in (0, 6))] for a, to in moves}
        for s in range(7)
        for moves in [[(0, s - 1), (1, s + 1)]]
    }
    start = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    return TabularEnv(from_outcomes(outcomes, start, [6]), rows, 0, "cpu", limit)


WALK = torch.arange(1, 6) / 6
V = torch.tensor([0.5, -1.0, 2.0, 3.0, -4.0, 10.0], dtype=torch.float64)


def given(algo: Any, values: Tensor = V) -> Any:
    with torch.no_grad():
        algo.policy.v.weight.copy_(values[:, None])
    return algo


def target(algo: Any, env: Any) -> Tensor:
    """What one rollout is credited with."""
    with torch.no_grad():
        return algo.credit(algo.rollout(env))["return"]


# Monte Carlo

EPISODE = [(1, 1.0), (2, 2.0), (1, 4.0), (3, 8.0)]  # γ = ½: returns 4, 6, 8, 8


@pytest.mark.parametrize(("visits", "expected"), [("first", 4.0), ("every", 6.0)])
def test_an_episode_that_comes_back_to_a_state_by_hand(visits: str, expected: float) -> None:
    env = Tape([EPISODE])
    algo = algorithm("monte_carlo", env, visits=visits, gamma=0.5)
    iterate(algo, env)
    assert_close(algo.policy.values, torch.tensor([0, expected, 6, 8, 0, 0], dtype=torch.float64))
    assert algo.policy.visits.tolist() == [0, 1 if visits == "first" else 2, 1, 1, 0, 0]


@pytest.mark.parametrize("visits", ["first", "every"])
def test_the_sample_average_is_the_mean_of_all_returns_by_a_plain_loop(visits: str) -> None:
    env = control(Walk, rows=4, limit=1000)
    algo = algorithm("monte_carlo", env, visits=visits, gamma=0.9, initial=7.0)
    found: dict[int, list[float]] = {}
    for _ in range(12):
        rollout = iterate(algo, env)
        for b in range(4):
            states = rollout["observation"][b, : int(rollout["mask"][b].sum())].tolist()
            rewards = rollout["reward"][b].tolist()
            for t, s in enumerate(states):
                if visits == "every" or s not in states[:t]:
                    earned = sum(0.9**k * r for k, r in enumerate(rewards[t : len(states)]))
                    found.setdefault(s, []).append(earned)
    assert sorted(found) == [1, 2, 3, 4]
    for s, returns in found.items():
        assert float(algo.policy.values[s]) == pytest.approx(sum(returns) / len(returns), rel=1e-12)
        assert int(algo.policy.visits[s]) == len(returns)
    assert algo.policy.values[[0, 5]].tolist() == [7.0, 7.0]  # never judged


def test_a_constant_step_moves_by_lr_and_visits_to_one_state_share_it() -> None:
    env = Tape([EPISODE, [(2, 1.0)]])
    algo = given(algorithm("monte_carlo", env, visits="every", lr=0.25, gamma=0.5))
    iterate(algo, env)
    moved = [0.5, -1 + 0.25 * (6 - -1), 2 + 0.25 * ((6 + 1) / 2 - 2), 3 + 0.25 * (8 - 3), -4.0, 10.0]
    assert_close(algo.policy.values, torch.tensor(moved, dtype=torch.float64))


@pytest.mark.parametrize(("terminated", "tail"), [(True, 0.0), (False, 10.0)])
def test_an_episode_cut_short_goes_on_with_v_and_one_that_ended_does_not(terminated: bool, tail: float) -> None:
    env = Tape([[(1, 1.0), (2, 2.0)]], terminated=terminated)
    algo = given(algorithm("monte_carlo", env, gamma=0.9))  # in float32 0.9 would be 0.89999998
    wanted = torch.tensor([[2.8 + 0.81 * tail, 2 + 0.9 * tail]], dtype=torch.float64)
    assert_close(target(algo, env), wanted, rtol=1e-14, atol=0)


def test_counting_first_visits_leaves_the_number_of_steps_played_alone() -> None:
    env = Tape([EPISODE])
    algo = algorithm("monte_carlo", env)
    rollout = iterate(algo, env)
    assert int(rollout["mask"].sum()) == 4


# Temporal differences


def test_one_step_of_the_loop_is_exactly_the_td_update() -> None:
    env = control(Walk, rows=1, limit=4)
    algo = given(algorithm("td", env, lr=0.5, gamma=0.5))
    v, kinds = V.clone(), set()
    for _ in range(200):
        rollout = iterate(algo, env)
        keys = ("observation", "reward", "next_observation", "terminated", "done")
        s, r, after, terminated, done = (rollout[key].item() for key in keys)
        v[s] += 0.5 * (r + 0.5 * (0.0 if terminated else v[after]) - v[s])
        assert_close(algo.policy.values, v, rtol=0, atol=1e-14)
        kinds.add((terminated, done))
    assert kinds == {(False, False), (False, True), (True, True)}  # ongoing, truncated, terminated


@pytest.mark.parametrize(("n", "steps"), [(2, 1), (3, 1), (3, 2), (4, 7)])
def test_n_step_updates_equal_a_plain_loop_over_the_stream(n: int, steps: int) -> None:
    env = control(Walk, rows=1, limit=6)
    algo = given(algorithm("td", env, lr=0.25, gamma=0.5, n=n, steps=steps))
    v, stream, learned = V.clone(), [], 0
    keys = ("observation", "reward", "next_observation", "terminated", "done")
    for _ in range(60):
        rollout = iterate(algo, env)
        stream += list(zip(*(rollout[key][0].tolist() for key in keys), strict=True))
        moves: dict[int, list[float]] = {}
        while learned + n <= len(stream):
            total = 0.0
            for k in range(n):
                _, r, after, terminated, done = stream[learned + k]
                total += 0.5**k * r
                if done or k == n - 1:
                    total += 0.5 ** (k + 1) * float(v[after]) * (not terminated)
                    break
            moves.setdefault(stream[learned][0], []).append(total - float(v[stream[learned][0]]))
            learned += 1
        for s, deltas in moves.items():  # visits of one update share its step
            v[s] += 0.25 * sum(deltas) / len(deltas)
        assert_close(algo.policy.values, v, rtol=0, atol=1e-12)
    assert learned == 60 * steps - (n - 1)


def test_the_lambda_return_is_the_weighted_mean_of_all_n_step_returns() -> None:
    env, lam, gamma = control(Walk, rows=3, limit=5), 0.75, 0.9
    algo = given(algorithm("td", env, gamma=gamma, lam=lam, steps=11))
    with torch.no_grad():
        steps = algo.credit(algo.rollout(env))
    done, reward = steps["done"].tolist(), steps["reward"].tolist()
    for b in range(3):
        for t in range(11):
            end = next((k for k in range(t, 11) if done[b][k] or k == 10), 10)
            mixed, total, count = 0.0, 0.0, end - t + 1
            for n in range(1, count + 1):
                k = t + n - 1
                total += gamma ** (n - 1) * reward[b][k]
                value = float(V[steps["next_observation"][b, k]]) * (not steps["terminated"][b, k])
                share = lam ** (n - 1) * ((1 - lam) if n < count else 1)  # the last takes what is left
                mixed += share * (total + gamma**n * value)
            assert float(steps["return"][b, t]) == pytest.approx(mixed, rel=1e-12, abs=1e-12)


def test_lambda_zero_is_td_zero_and_lambda_one_the_return_within_the_window() -> None:
    path = [(1, 1.0), (2, 2.0), (3, 4.0)]
    one_step = torch.tensor([[1 + 2 / 2, 2 + 3 / 2, 4 + 10 / 2]], dtype=torch.float64)
    whole = torch.tensor([[1 + 2 / 2 + 4 / 4 + 10 / 8, 2 + 4 / 2 + 10 / 4, 4 + 10 / 2]], dtype=torch.float64)
    for lam, expected in ((0.0, one_step), (1e-9, one_step), (1.0, whole)):
        env = Tape([path], terminated=False)
        found = target(given(algorithm("td", env, gamma=0.5, lam=lam, steps=3)), env)
        assert_close(found, expected, rtol=0, atol=1e-7)
    env = Tape([path], terminated=False)
    assert_close(target(given(algorithm("monte_carlo", env, gamma=0.5)), env), whole)


def test_n_steps_become_one_step_and_the_whole_episode() -> None:
    path = [(1, 1.0), (2, 2.0), (3, 4.0)]
    env = Tape([path, path], [path, path], terminated=True)
    by_n = {n: given(algorithm("td", env, gamma=0.5, n=n, steps=3)) for n in (1, 4)}
    assert_close(target(by_n[1], env)[0], torch.tensor([2.0, 3.5, 4.0], dtype=torch.float64))
    env = Tape([path], [path], terminated=True)
    assert target(by_n[4], env).shape == (1, 0)  # all three still wait
    assert_close(
        target(by_n[4], env)[0], torch.tensor([3.0, 4.0, 4.0], dtype=torch.float64)
    )  # with their whole episode


@pytest.mark.slow
def test_values_converge_to_what_truncated_steps_bootstrap_from() -> None:
    env = control(Ring, rows=2, limit=5)  # reward 1 forever, cut every five steps: V = 1 / (1 − γ)
    for algo in (algorithm("td", env, gamma=0.5, lr=0.5), algorithm("monte_carlo", env, gamma=0.5, lr=0.5)):
        for _ in range(250):
            iterate(algo, env)
        assert_close(algo.policy.values, torch.full((4,), 2.0, dtype=torch.float64), rtol=0, atol=1e-6)


LINEAR = {"lr": 0.2, "schedule": "linear", "lr_end": 0.005}


@pytest.mark.parametrize(
    ("name", "iterations", "config"),
    [
        pytest.param("td", 900, LINEAR, marks=pytest.mark.slow),
        pytest.param("td", 900, LINEAR | {"n": 3}, marks=pytest.mark.slow),
        ("td", 250, LINEAR | {"lam": 0.8, "steps": 8}),
        ("monte_carlo", 100, {"visits": "first"}),
        ("monte_carlo", 100, {"visits": "every"}),
    ],
)
@pytest.mark.slow
def test_every_method_comes_near_the_linear_solve(name: str, iterations: int, config: dict[str, Any]) -> None:
    env = walk()
    algo = algorithm(name, env, gamma=1.0, initial=0.5, **config)
    for i in range(iterations):
        set_progress(algo, i, iterations)
        iterate(algo, env)
    true = exact.policy_values(env.model(), torch.full((7, 2), 0.5), 1.0)
    assert_close(true[1:6], WALK.double())
    assert float((algo.policy.values - true)[1:6].square().mean().sqrt()) < 0.02


# The policy that is judged


def test_the_policy_acts_at_random_with_probability_epsilon_and_otherwise_optimally() -> None:
    module = plugins.load("envs", "gridworld")
    env = module.make(module.Config(), 0, "cpu")
    policy = algorithm("td", env, epsilon=0.2, gamma=0.9).policy
    best = exact.optimal_actions(env.model(), 0.9)
    assert bool(best[torch.arange(64), policy.probabilities.argmax(-1)].all())
    assert_close(policy.probabilities.amax(-1), torch.full((64,), 0.8 + 0.2 / 4, dtype=torch.float64))
    assert torch.equal(algorithm("td", env).policy.probabilities, torch.full((64, 4), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("name", ["td", "monte_carlo"])
def test_an_optimal_policy_without_a_discount_comes_to_an_end(name: str) -> None:
    """To walk into a wall earns 0 and costs nothing, so of the best actions most lead nowhere."""
    module = plugins.load("envs", "gridworld")
    env = module.make(module.Config(size=5, goal=(4, 4), trap=(2, 2)), 0, "cpu")
    model = env.model()
    policy = algorithm(name, env, epsilon=0.0, gamma=1.0).policy
    reached = exact.policy_values(model, policy.probabilities, 1.0)
    assert_close(reached[~model.terminal], torch.ones(23, dtype=torch.float64))
    slips = algorithm(name, env, epsilon=0.1, gamma=1.0).policy
    assert float(exact.policy_values(model, slips.probabilities, 1.0) @ model.start) > 0.9


@pytest.mark.parametrize("greedy", [False, True])
def test_a_value_table_draws_from_its_probabilities_even_when_it_is_measured(greedy: bool) -> None:
    probabilities = torch.tensor([[0.7, 0.0, 0.3], [0.0, 0.0, 1.0]], dtype=torch.float64)
    policy = policies.ValueTable(probabilities, seed=0)
    count = policy.act(torch.arange(2).repeat(20_000), greedy).view(-1, 2)
    assert count[:, 0].unique().tolist() == [0, 2] and count[:, 1].unique().tolist() == [2]
    assert abs(float((count[:, 0] == 0).double().mean()) - 0.7) < 4 * (0.7 * 0.3 / 20_000) ** 0.5


def test_prediction_is_judged_by_the_true_values_of_the_states_it_can_see() -> None:
    module = plugins.load("envs", "gridworld")
    env = module.make(module.Config(start=(0, 0)), 0, "cpu")
    policy = algorithm("td", env, epsilon=0.0, gamma=0.9).policy  # walks one way: 14 cells
    true = exact.policy_values(env.model(), policy.probabilities, 0.9)
    with torch.no_grad():
        policy.v.weight.copy_(true[:, None] + 0.25)
    seen = exact.reachable(env.model(), policy.probabilities) & ~env.model().terminal
    assert int(seen.sum()) == 14
    with torch.no_grad():
        policy.v.weight[~seen] = 1e6
    report = env.exact(policy, 0.9)
    assert report == pytest.approx({"value": 0.9**13 + 0.25, "true_value": 0.9**13, "rmse": 0.25})


@pytest.mark.parametrize("name", ["td", "monte_carlo"])
def test_learning_resumes_with_the_same_values_counts_and_waiting_steps(name: str, tmp_path: Any) -> None:
    config = {"n": 3} if name == "td" else {"visits": "every"}
    env, other_env = walk(rows=3), walk(rows=3)
    whole, other = algorithm(name, env, **config), algorithm(name, other_env, **config)
    for _ in range(10):
        iterate(whole, env)
    progress.save(tmp_path, whole, env, progress.Progress())
    progress.restore(tmp_path, other, other_env)
    for _ in range(10):
        iterate(whole, env), iterate(other, other_env)
    for key, x in whole.policy.state_dict().items():
        assert torch.equal(x, other.policy.state_dict()[key]), key
    assert bool(whole.policy.values.any())


def test_td_learns_from_every_step_and_with_lambda_from_sixteen_at_once() -> None:
    env = control(Walk, 2, 6)
    for config, steps in (({}, 1), ({"lam": 0.5}, 16), ({"steps": 5}, 5), ({"lam": 0.5, "steps": 5}, 5)):
        assert iterate(algorithm("td", env, **config), env)["reward"].shape == (2, steps)


# What cannot be


def test_what_cannot_be_is_refused_with_one_line() -> None:
    env = control(Walk, 1, 6)
    with pytest.raises(UserError, match=r"^td with algo\.epsilon=0\.5 needs the model .* or use algo\.epsilon=1$"):
        algorithm("td", env, epsilon=0.5)
    with pytest.raises(UserError, match=r"algo\.n=3 and algo\.lam=0\.5 are two ways"):
        algorithm("td", env, n=3, lam=0.5, steps=4)
    with pytest.raises(UserError, match=r"algo\.steps=1; give algo\.steps=16"):
        algorithm("td", env, lam=0.5, steps=1)
    for name in ("td", "monte_carlo"):
        with pytest.raises(UserError, match=rf"^{name} keeps a table and needs finitely many states.*algo=dqn$"):
            algorithm(name, cartpole(1), policies.Network())
        with pytest.raises(UserError, match=rf"^{name} keeps a table .* not text; use algo=grpo$"):
            algorithm(name, RaggedText(), object())


@pytest.mark.parametrize(
    ("epsilon", "asked"), [(0.5, r"algo\.epsilon=0\.5 asks for the"), (1.0, r"algo\.epsilon=1 asks for a")]
)
def test_a_policy_without_values_is_refused_in_one_line(epsilon: float, asked: str) -> None:
    """State 2 can be left by no action, and costs 1 a step."""
    outcomes = {0: {0: [(1.0, 1, -1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}, 2: {0: [(1.0, 2, -1.0, False)]}}
    env = TabularEnv(from_outcomes(outcomes, [1.0, 0.0, 0.0], [1]), 2)
    with pytest.raises(UserError, match=rf"^{asked}.*: .* use gamma < 1$"):
        algorithm("td", env, gamma=1.0, epsilon=epsilon)
