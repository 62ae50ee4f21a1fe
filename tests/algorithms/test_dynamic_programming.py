"""Planning with a known model: exact fixed points on every tabular environment, contraction, monotone improvement."""

from functools import cache
from typing import Any

import pytest
import torch
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from support import fakes
from support.fakes import RaggedText, Walk, algorithm, cartpole, control, iterate
from support.marks import slow_if
from torch.testing import assert_close

from rlkit import exact, loop, policies, progress
from rlkit.api import UserError
from rlkit.control import TabularEnv
from rlkit.meter import Meter
from rlkit.pages.meanings import MEANINGS

GAMMA = 0.9
ENVS = ["gridworld", "frozenlake", "cliffwalking", "taxi"]


tabular = cache(fakes.environment)  # made once


def at_random(algo: Any, size: float = 10.0) -> None:
    """Any Q to begin with; nothing follows a terminal state."""
    draw = torch.Generator().manual_seed(0)
    q = size * torch.randn(algo.policy.q.weight.shape, generator=draw, dtype=torch.float64)
    with torch.no_grad():
        algo.policy.q.weight.copy_(q * ~algo.model.terminal[:, None])


def best(algo: Any) -> torch.Tensor:
    return algo.policy.q.weight.detach().amax(-1)


def distance(algo: Any, q: torch.Tensor) -> float:
    return float((algo.policy.q.weight.detach() - q).abs().amax())


# Value iteration


@pytest.mark.parametrize("name", slow_if("taxi".__eq__, ENVS))
def test_value_iteration_ends_at_the_optimal_values(name: str) -> None:
    env = tabular(name)
    algo = algorithm("value_iteration", env, gamma=GAMMA)
    for _ in range(270):  # γ^270·20/(1 − γ) < 1e-10
        iterate(algo, env)
    optimal = exact.optimal_values(env.model(), GAMMA)  # by linear solves
    assert_close(best(algo), optimal, rtol=0, atol=1e-10)
    actions = algo.policy.act(torch.arange(len(optimal)), greedy=True)
    assert_close(exact.policy_values(env.model(), actions, GAMMA), optimal, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ENVS)
def test_each_sweep_of_value_iteration_shrinks_the_error_by_gamma_at_least(name: str) -> None:
    env = tabular(name)
    algo = algorithm("value_iteration", env, gamma=GAMMA)
    at_random(algo)
    target = exact.q_values(env.model(), exact.optimal_values(env.model(), GAMMA), GAMMA)
    error = distance(algo, target)
    for _ in range(30):
        iterate(algo, env)
        before, error = error, distance(algo, target)
        assert error <= GAMMA * before + 1e-12


def test_a_sweep_is_the_backup_of_gymnasiums_table_by_a_plain_loop() -> None:
    env, outcomes = tabular("frozenlake"), FrozenLakeEnv(map_name="4x4", is_slippery=True).P
    algo = algorithm("value_iteration", env, gamma=GAMMA)
    at_random(algo)
    old = algo.policy.q.weight.detach().clone().tolist()
    iterate(algo, env)
    for s, row in outcomes.items():
        for a, possible in row.items():
            backup = sum(p * (r + GAMMA * (0 if over else max(old[to]))) for p, to, r, over in possible)
            expected = 0.0 if env.model().terminal[s] else backup
            assert float(algo.policy.q.weight[s, a].detach()) == pytest.approx(expected, abs=1e-14)


def test_value_iteration_without_discount_walks_the_edge_of_the_cliff_in_thirteen_steps() -> None:
    env = tabular("cliffwalking")
    algo = algorithm("value_iteration", env, gamma=1.0)
    for _ in range(40):
        iterate(algo, env)
    assert float(best(algo)[36]) == -13.0
    assert env.exact(algo.policy, 1.0) == {"value": -13.0, "optimal": -13.0, "agreement": 1.0}


def test_value_iteration_reports_its_largest_change_and_counts_pairs_that_matter() -> None:
    env = tabular("gridworld")
    algo, meter = algorithm("value_iteration", env, gamma=GAMMA), Meter()
    rollout = algo.rollout(env)
    assert int(rollout["mask"].sum()) == 62 * 4 and rollout["reward"].shape == (64, 4)
    with torch.no_grad():
        algo.buffer.extend(algo.credit(rollout))
    loop.learn(algo, meter)
    assert meter.read()["delta"] == 1.0  # the goal's reward, from nothing


# Policy iteration


def improvements(env: TabularEnv, tolerance: float, gamma: float = GAMMA) -> tuple[Any, list[torch.Tensor]]:
    """Run until the policy is stable and evaluated; every policy on the way."""
    algo = algorithm("policy_iteration", env, gamma=gamma, tolerance=tolerance)
    tables = [algo.policy.actions.clone()]
    for _ in range(20_000):
        count = algo.improvements
        iterate(algo, env)
        if algo.improvements > count and not algo.stable:
            tables.append(algo.policy.actions.clone())
        if algo.stable and algo.change <= tolerance:
            return algo, tables
    raise AssertionError("never stable")


@pytest.mark.parametrize("name", ["gridworld", "frozenlake", "cliffwalking"])
@pytest.mark.slow
def test_policy_iteration_ends_at_the_optimal_values(name: str) -> None:
    env = tabular(name)
    algo, tables = improvements(env, 1e-11)
    optimal = exact.optimal_values(env.model(), GAMMA)
    assert_close(best(algo), optimal, rtol=0, atol=1e-10)
    assert_close(exact.policy_values(env.model(), tables[-1], GAMMA), optimal, rtol=0, atol=1e-10)
    assert torch.equal(algo.policy.act(torch.arange(len(optimal))), tables[-1])


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.slow
def test_policies_only_get_better_until_none_of_their_actions_can(name: str) -> None:
    env = tabular(name)
    _, tables = improvements(env, 1e-4)
    values = torch.stack([exact.policy_values(env.model(), table, GAMMA) for table in tables])
    error = 1e-4 * GAMMA / (1 - GAMMA)  # what the evaluation may be off by
    assert len(tables) > 2 and float((values[1:] - values[:-1]).amin()) >= -error
    assert bool(((values[1:] - values[:-1]).amax(1) > error).all())  # each change is worth it somewhere
    assert_close(values[-1], exact.optimal_values(env.model(), GAMMA), rtol=0, atol=1e-10)


def test_a_stable_policy_is_optimal_up_to_the_tolerance() -> None:
    model, gamma, tolerance = tabular("frozenlake").model(), 0.99, 0.1
    _, tables = improvements(tabular("frozenlake"), tolerance, gamma)
    worse = exact.optimal_values(model, gamma) - exact.policy_values(model, tables[-1], gamma)
    assert 0.5 < float(worse.max()) <= tolerance * (1 + gamma) / (1 - gamma) ** 2
    assert "optimal" not in MEANINGS["train/stable"] and "algo.tolerance" in MEANINGS["train/stable"]


def test_policy_iteration_evaluates_before_it_improves() -> None:
    env = tabular("cliffwalking")
    algo = algorithm("policy_iteration", env, gamma=GAMMA, tolerance=1e-6)
    while algo.improvements == 0:
        evaluated = algo.policy.q.weight.detach().clone()
        iterate(algo, env)
    always_up = exact.policy_values(env.model(), torch.zeros(48, dtype=torch.long), GAMMA)
    assert_close(evaluated[:, 0], always_up, rtol=0, atol=1e-5)
    assert_close(evaluated, exact.q_values(env.model(), always_up, GAMMA), rtol=0, atol=1e-5)


@pytest.mark.parametrize("sweeps", [0, 100])
def test_policy_iteration_resumes_at_the_start_and_within_an_evaluation(tmp_path: Any, sweeps: int) -> None:
    env = tabular("frozenlake")
    whole = algorithm("policy_iteration", env, gamma=GAMMA)
    for _ in range(sweeps):
        iterate(whole, env)
    progress.save(tmp_path, whole, env, progress.Progress())
    other = algorithm("policy_iteration", env, gamma=GAMMA)
    progress.restore(tmp_path, other, env)
    for _ in range(50):
        iterate(whole, env), iterate(other, env)
    assert whole.improvements == other.improvements >= 1
    for key, x in whole.policy.state_dict().items():
        assert torch.equal(x, other.policy.state_dict()[key]), key


# What cannot be


@pytest.mark.parametrize("name", ["value_iteration", "policy_iteration"])
def test_planning_is_refused_where_no_model_is_known(name: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} needs the model .* gridworld, .* or use algo=q_learning$"):
        algorithm(name, control(Walk, 1, 6))
    with pytest.raises(UserError, match=rf"^{name} keeps a table and needs finitely many states.*algo=dqn$"):
        algorithm(name, cartpole(1), policies.Network())
    with pytest.raises(UserError, match=rf"^{name} keeps a table .* not text; use algo=grpo$"):
        algorithm(name, RaggedText(), object())


def test_policy_iteration_wants_a_discount() -> None:
    with pytest.raises(UserError, match=r"algo\.gamma=1"):
        algorithm("policy_iteration", tabular("gridworld"), gamma=1.0)
