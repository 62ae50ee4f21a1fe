"""SARSA, Expected SARSA and Q-learning: updates by hand and by the book, and the cliff with the limits of each."""

from functools import cache
from itertools import product
from typing import Any

import gymnasium
import pytest
import torch
from fakes import RaggedText, Walk, algorithm, cartpole, control, iterate
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from gymnasium.spaces import Discrete
from probes import Draws
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import exact, plugins, policies, tables, train
from rlkit.api import UserError
from rlkit.tabular import TabularEnv


def tabular(name: str, **config: Any) -> TabularEnv:
    module = plugins.load("envs", name)
    return module.make(module.Config(**config), 0, "cpu")


class Tape:
    """An environment that plays written steps: (s, a, r, s', terminated, done), one row."""

    kind, seed, device = "control", 0, torch.device("cpu")
    observation_space, action_space = Discrete(6), Discrete(2)

    def __init__(self, *rollouts: list[tuple[int, int, float, int, bool, bool]]) -> None:
        self.rollouts = iter(rollouts)

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        keys = ("observation", "action", "reward", "next_observation", "terminated", "done")
        columns = zip(*next(self.rollouts), strict=True)
        data = {key: torch.tensor([column]) for key, column in zip(keys, columns, strict=True)}
        return TensorDict(data | {"mask": torch.ones_like(data["done"])}, batch_size=[1])


Q = torch.tensor([[0.0, 0.0], [1.0, 2.0], [4.0, -4.0], [8.0, 16.0], [0.5, 3.0], [5.0, 7.0]])


def given(algo: Any) -> Any:
    with torch.no_grad():
        algo.policy.q.weight.copy_(Q)
    return algo


def fixed(name: str, env: Any, **config: Any) -> Any:
    """With an ε that stays, and the Q above."""
    epsilon = config.pop("epsilon", 1.0)
    return given(algorithm(name, env, epsilon=epsilon, epsilon_end=epsilon, **config))


def credited(algo: Any, env: Any) -> TensorDict:
    with torch.no_grad():
        return algo.credit(algo.rollout(env))


# SARSA

STEP = (1, 0, 1.0, 2, False, False)  # then at 2 the action 1 is taken, worth −4


def test_a_single_update_of_sarsa_by_hand_waits_for_the_next_action() -> None:
    env = Tape([STEP], [(2, 1, 0.0, 3, False, False)])
    algo = fixed("sarsa", env, lr=0.5, gamma=0.5)
    iterate(algo, env)
    assert torch.equal(algo.policy.q.weight.detach(), Q)  # nobody knows yet what comes next
    iterate(algo, env)
    expected = Q.clone()
    expected[1, 0] += 0.5 * (1.0 + 0.5 * -4.0 - 1.0)  # and not the 4 of the better action
    assert torch.equal(algo.policy.q.weight.detach(), expected)


def test_within_a_rollout_the_next_action_is_the_next_columns() -> None:
    env = Tape([STEP, (2, 1, 2.0, 3, False, False), (3, 0, 4.0, 4, False, False)])
    steps = credited(fixed("sarsa", env, gamma=0.5, steps=3), env)
    assert_close(steps["return"], torch.tensor([[1 - 4 / 2, 2 + 8 / 2]]))


@pytest.mark.parametrize("name", ["sarsa", "expected_sarsa", "q_learning"])
def test_truncation_bootstraps_and_termination_does_not(name: str) -> None:
    ended = [(4, 1, 1.0, 5, True, True), (1, 0, 0.0, 2, False, False)]
    cut = [(4, 1, 1.0, 5, False, True), (1, 0, 0.0, 2, False, False)]
    env = Tape(ended, cut)
    algo = fixed(name, env, gamma=0.5, epsilon=0.5, steps=2)
    tail = 7.0 if name == "q_learning" else 0.75 * 7 + 0.25 * 5  # never the action after the reset
    assert float(credited(algo, env)["return"][0, 0]) == 1.0
    algo = fixed(name, env, gamma=0.5, epsilon=0.5, steps=2)
    assert float(credited(algo, env)["return"][0, 0]) == 1.0 + 0.5 * tail


def test_the_loop_is_exactly_the_books_sarsa() -> None:
    env, alpha, gamma = control(Walk, rows=1, limit=4), 0.5, 0.5
    algo = fixed("sarsa", env, lr=alpha, gamma=gamma)
    q, before, kinds = Q.clone(), None, set()
    keys = ("observation", "action", "reward", "next_observation", "terminated", "done")
    for _ in range(300):
        rollout = iterate(algo, env)
        now = tuple(rollout[key].item() for key in keys)
        if before is not None:
            s, a, r, after, terminated, done = before
            then = q[after].mean() if done else q[now[0], now[1]]
            delta = r + gamma * (0.0 if terminated else then) - q[s, a]
            q[s, a] += alpha * delta
            kinds.add((terminated, done))
        assert_close(algo.policy.q.weight.detach(), q)
        before = now
    assert kinds == {(False, False), (False, True), (True, True)}


def test_sarsa_resumes_with_the_step_that_waits(tmp_path: Any) -> None:
    envs = [tabular("gridworld", rows=3) for _ in range(2)]
    whole, other = (algorithm("sarsa", env, initial=0.5) for env in envs)
    for _ in range(20):
        iterate(whole, envs[0])
    train.save(tmp_path, whole, envs[0], train.Progress())
    train.restore(tmp_path, other, envs[1])
    for _ in range(20):
        iterate(whole, envs[0]), iterate(other, envs[1])
    assert torch.equal(whole.policy.q.weight, other.policy.q.weight)
    assert bool((whole.policy.q.weight != 0.5).any())


# Expected SARSA


def test_expected_sarsa_equals_a_plain_loop() -> None:
    env, alpha, gamma, epsilon = control(Walk, rows=1, limit=4), 0.5, 0.5, 0.25
    algo = fixed("expected_sarsa", env, lr=alpha, gamma=gamma, epsilon=epsilon)
    q = Q.clone()
    for _ in range(200):
        rollout = iterate(algo, env)
        s, a, r, after, over = (
            rollout[key].item() for key in ("observation", "action", "reward", "next_observation", "terminated")
        )
        best = int(q[after].argmax())
        mean = sum((epsilon / 2 + (1 - epsilon) * (b == best)) * q[after, b] for b in range(2))
        q[s, a] += alpha * (r + gamma * (0.0 if over else mean) - q[s, a])
        assert_close(algo.policy.q.weight.detach(), q)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_expected_sarsa_is_sarsas_target_averaged_over_the_next_action(epsilon: float) -> None:
    chosen = tables.Table(6, 2, seed=0)
    with torch.no_grad():
        chosen.q.weight.copy_(Q)
    share = exact.epsilon_greedy(Q[2], epsilon)
    mean = torch.zeros(())
    for action in range(2):
        env = Tape([STEP, (2, action, 0.0, 3, False, False)])
        mean = (
            mean
            + share[action] * credited(fixed("sarsa", env, gamma=0.5, epsilon=epsilon, steps=2), env)["return"][0, 0]
        )
    env = Tape([STEP])
    assert_close(credited(fixed("expected_sarsa", env, gamma=0.5, epsilon=epsilon), env)["return"][0, 0], mean)
    # and the shares are how often the table acts so
    chosen.epsilon = epsilon
    drawn = chosen.act(torch.full((20_000,), 2)).double().mean()
    assert abs(float(drawn - share[1])) <= 4 * float(share[1] * share[0] / 20_000) ** 0.5


def test_without_exploration_expected_sarsa_is_q_learning() -> None:
    found = []
    for name in ("expected_sarsa", "q_learning"):
        env = tabular("cliffwalking", rows=4)
        algo = algorithm(name, env, epsilon=0.0, epsilon_end=0.0)
        for _ in range(50):
            iterate(algo, env)
        found.append(algo.policy.q.weight.detach())
    assert torch.equal(*found) and bool(found[0].any())


@pytest.mark.parametrize("name", ["sarsa", "expected_sarsa"])
def test_tables_are_refused_where_there_are_no_states(name: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} keeps a table .* use algo=dqn"):
        algorithm(name, cartpole(1), policies.Network())
    with pytest.raises(UserError, match=rf"^{name} .* not text; use algo=grpo"):
        algorithm(name, RaggedText(), object())


# The environments


@pytest.mark.parametrize(
    ("name", "config", "theirs"),
    [
        ("cliffwalking", {}, CliffWalkingEnv()),
        ("cliffwalking", {"slippery": True}, CliffWalkingEnv(is_slippery=True)),
        ("taxi", {}, TaxiEnv()),
        ("taxi", {"rainy": True}, TaxiEnv(is_rainy=True)),
    ],
)
def test_the_model_is_gymnasiums_table(name: str, config: dict[str, Any], theirs: Any) -> None:
    model = tabular(name, **config).model()
    assert_close(model.transition.sum(-1), torch.ones(model.reward.shape, dtype=torch.float64))
    assert model.start.tolist() == theirs.initial_state_distrib.tolist()
    for s, row in theirs.P.items():
        for a, possible in row.items():
            mean = sum(p * r for p, _, r, _ in possible)
            assert float(model.reward[s, a]) == pytest.approx(mean, rel=1e-12)
            for p, to, r, over in possible:
                assert bool(model.terminal[to]) or not over
                if [other for _, other, _, _ in possible].count(to) == 1:
                    assert float(model.transition[s, a, to]) == pytest.approx(p)
                    assert float(model.outcome_reward[s, a, to]) == pytest.approx(r)


@pytest.mark.parametrize(("name", "limit"), [("cliffwalking", 500), ("taxi", 200)])
def test_random_play_is_gymnasiums_own(name: str, limit: int) -> None:
    env = tabular(name, rows=3)
    their = {"cliffwalking": CliffWalkingEnv, "taxi": TaxiEnv}[name]()
    registered = [spec.max_episode_steps for id, spec in gymnasium.registry.items() if id.startswith("Taxi-")]
    assert name != "taxi" or registered == [limit]
    rollout = env.rollout(Draws(env))
    assert rollout["mask"].sum(-1).max() == limit  # nobody finds the way by chance
    for b in range(3):
        their.reset(seed=0)
        their.s = int(rollout["observation"][b, 0])
        assert their.initial_state_distrib[their.s] > 0
        for t in range(int(rollout["mask"][b].sum())):
            assert int(rollout["observation"][b, t]) == their.s
            observation, reward, terminated, _, _ = their.step(int(rollout["action"][b, t]))
            assert (observation, reward) == (int(rollout["next_observation"][b, t]), float(rollout["reward"][b, t]))
            assert terminated == bool(rollout["terminated"][b, t])


def test_a_delivered_passenger_ends_the_episode_and_404_states_can_be_seen() -> None:
    env = tabular("taxi")
    assert env.model().terminal.nonzero()[:, 0].tolist() == [0, 85, 410, 475]
    assert int(exact.reachable(env.model()).sum()) == 404
    best = exact.greedy(env.model(), exact.optimal_values(env.model(), 0.99), 0.99)
    report = env.exact(best, 0.99)
    assert report["agreement"] == 1.0 and report["value"] == pytest.approx(report["optimal"])
    scores = env.evaluate(best, 300, "test")
    undiscounted = float(env.model().start @ exact.policy_values(env.model(), best, 1.0))
    assert float(scores.score.mean()) == pytest.approx(undiscounted, abs=4 * float(scores.score.std()) / 300**0.5)


def test_without_discount_a_policy_that_never_ends_is_given_no_value() -> None:
    report = tabular("cliffwalking").exact(torch.zeros(48, dtype=torch.long), 1.0)  # up for ever, at -1 a step
    assert report.keys() == {"optimal", "agreement"} and report["optimal"] == -13.0


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
    model = tabular("cliffwalking").model()
    q = exact.q_values(model, exact.optimal_values(model, 1.0), 1.0)
    soft = exact.q_values(model, exact.soft_optimal_values(model, 1.0, EPSILON), 1.0)
    behaviour = [exact.policy_values(model, exact.epsilon_greedy(x, EPSILON), 1.0) for x in (q, soft)]
    return {"q_learning": q, "sarsa": soft, "q_learning value": behaviour[0], "sarsa value": behaviour[1]}


def path(q: Tensor) -> list[int]:
    """The cells of the greedy way from the start."""
    move = tabular("cliffwalking").model().transition.argmax(-1)
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
    env = tabular("cliffwalking", step_limit=5000)
    policy = tables.Table(48, 4, seed=0)
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
    env = tabular("cliffwalking", rows=64)
    lr = {"lr": 1.0} if name == "q_learning" else {"lr": 0.3, "schedule": "linear", "lr_end": 0.02}
    algo = algorithm(name, env, gamma=1.0, epsilon=EPSILON, epsilon_end=EPSILON, **lr)
    scores: list[float] = []
    for i in range(iterations):
        algo.progress = i / iterations
        train.set_learning_rate(algo, i)
        iterate(algo, env)
        scores += [score for score, _ in env.finished] if i > iterations // 2 else []
    return algo.policy.q.weight.detach().double(), sum(scores) / len(scores)


def test_q_learning_learns_the_edge_whatever_it_does_meanwhile() -> None:
    q, _ = learned("q_learning")
    assert path(q) == path(limits()["q_learning"])
    edge = path(q)[:-1]
    assert_close(q[edge].amax(-1), limits()["q_learning"][edge].amax(-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "tolerance"), [("sarsa", 1.5), ("expected_sarsa", 0.5)])
def test_sarsa_learns_what_its_own_exploring_costs(name: str, tolerance: float) -> None:
    q, _ = learned(name)
    value = float((exact.epsilon_greedy(q, EPSILON) * q).sum(-1)[START])
    assert value == pytest.approx(float(limits()["sarsa value"][START]), abs=tolerance)
    model = tabular("cliffwalking").model()
    worth = exact.policy_values(model, exact.epsilon_greedy(q, EPSILON), 1.0)[START]
    assert float(worth) > float(limits()["sarsa value"][START]) - 2.0  # the edge would be 25 below
    assert not set(path(q)) & set(range(25, 35))


def test_sarsas_online_return_is_the_better_one_and_each_is_near_its_limit() -> None:
    online = {name: learned(name)[1] for name in ("q_learning", "sarsa", "expected_sarsa")}
    assert min(online["sarsa"], online["expected_sarsa"]) > online["q_learning"] + 15
    assert online["q_learning"] == pytest.approx(float(limits()["q_learning value"][START]), abs=4)
    assert online["expected_sarsa"] == pytest.approx(float(limits()["sarsa value"][START]), abs=2)
