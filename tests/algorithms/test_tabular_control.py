"""SARSA and Expected SARSA: updates by hand, by the book and against each other."""

from typing import Any

import pytest
import torch
from gymnasium.spaces import Discrete
from support.fakes import RaggedText, Walk, algorithm, cartpole, control, environment, iterate
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit import exact, policies, progress
from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.settings import plugins


class Tape:
    """An environment that plays written steps: (s, a, r, s', terminated, done), one row."""

    kind, seed, device, rows, longest = "control", 0, torch.device("cpu"), 1, None
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
    envs = [environment("gridworld", rows=3) for _ in range(2)]
    whole, other = (algorithm("sarsa", env, initial=0.5) for env in envs)
    for _ in range(20):
        iterate(whole, envs[0])
    progress.save(tmp_path, whole, envs[0], progress.Progress())
    progress.restore(tmp_path, other, envs[1])
    for _ in range(20):
        iterate(whole, envs[0]), iterate(other, envs[1])
    assert torch.equal(whole.policy.q.weight, other.policy.q.weight)
    assert bool((whole.policy.q.weight != 0.5).any())


# Expected SARSA


@pytest.mark.slow
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
    chosen = policies.Table(6, 2, seed=0)
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
        env = environment("cliffwalking", rows=4)
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


def gym(name: str, **keys: object) -> ControlEnv:
    module = plugins.load("envs", "gym")
    return module.make(module.Config(rows=2, id=name, **keys), 0, "cpu")


def test_states_that_are_no_single_number_get_advice_that_helps() -> None:
    with pytest.raises(UserError, match=r"^sarsa keeps a table and needs states that are one Discrete, not a Tuple: "):
        algorithm("sarsa", gym("Blackjack-v1"))
    with pytest.raises(UserError, match=r"^td knows no action masks, .*: give env\.action_masks=false, or"):
        algorithm("td", gym("Taxi-v4"))
    algorithm("td", gym("Taxi-v4", action_masks=False))
    algorithm("sarsa", gym("Taxi-v4"))
