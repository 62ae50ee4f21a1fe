"""Cliff walking and taxi: Gymnasium's own tables and play, and what the model says of a policy."""

from typing import Any

import gymnasium
import pytest
import torch
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from support.fakes import environment
from support.probes import Draws
from torch.testing import assert_close

from rlkit import exact, policies
from rlkit.control import TabularEnv
from rlkit.errors import UserError
from rlkit.settings import plugins


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
    model = environment(name, **config).model()
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
    env = environment(name, rows=3)
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


@pytest.mark.slow
def test_a_delivered_passenger_ends_the_episode_and_404_states_can_be_seen() -> None:
    env = environment("taxi")
    assert env.model().terminal.nonzero()[:, 0].tolist() == [0, 85, 410, 475]
    assert int(exact.reachable(env.model()).sum()) == 404
    best = exact.greedy(env.model(), exact.optimal_values(env.model(), 0.99), 0.99)
    report = env.exact(best, 0.99)
    assert report["agreement"] == 1.0 and report["value"] == pytest.approx(report["optimal"])
    scores = env.evaluate(best, 300, "test")
    undiscounted = float(env.model().start @ exact.policy_values(env.model(), best, 1.0))
    assert float(scores.score.mean()) == pytest.approx(undiscounted, abs=4 * float(scores.score.std()) / 300**0.5)


def test_without_discount_a_policy_that_never_ends_is_given_no_value() -> None:
    report = environment("cliffwalking").exact(torch.zeros(48, dtype=torch.long), 1.0)  # up forever, at -1 a step
    assert report["value"] == -500.0 and report["optimal"] == -13.0  # within the step limit


def test_without_a_discount_the_value_is_what_an_episode_earns_within_its_step_limit() -> None:
    env = environment("gridworld", slip=0.3, step_limit=9, start=(0, 0), goal=(2, 2), trap=(4, 4), size=5)
    actions = torch.full((25,), 2).index_fill(0, torch.arange(2, 25, 5), 1)  # right, then down
    report = env.exact(actions, 1.0)
    scores = env.evaluate(actions, 4000, "test").score
    assert abs(float(scores.mean()) - report["value"]) < 4 * float(scores.std()) / 4000**0.5
    assert report["value"] < report["optimal"] == pytest.approx(env.reference.high)
    assert report["value"] != pytest.approx(env.exact(actions, 0.99)["value"], abs=1e-3)


def test_what_earns_for_ever_has_a_value_within_the_step_limit() -> None:
    model = exact.Model(
        torch.ones(1, 1, 1).double(), torch.ones(1, 1).double(), torch.zeros(1) > 0, torch.ones(1).double()
    )
    report = TabularEnv(model, 1, step_limit=30).exact(torch.zeros(1, dtype=torch.long), 1.0)
    assert report == {"value": 30.0, "optimal": 30.0, "agreement": 1.0}
    with pytest.raises(ValueError, match="undiscounted values are infinite"):
        exact.optimal_values(model, 1.0)


def test_an_algorithm_without_a_discount_is_judged_without_one() -> None:
    assert policies.discount(plugins.load("algorithms", "grpo").Config()) == 1.0
    assert policies.discount(plugins.load("algorithms", "ppo").Config(gamma=0.9)) == 0.9


def test_a_grid_that_does_not_fit_into_memory_is_refused_at_once() -> None:
    gridworld = plugins.load("envs", "gridworld")
    with pytest.raises(UserError, match=r"^env\.size=65536 needs [\d,]+.* GB, .* are free: give a smaller one$"):
        gridworld.make(gridworld.Config(size=65536), 0, "cpu")


def test_a_step_limit_whose_luck_does_not_fit_into_memory_is_refused_at_once() -> None:
    lake = plugins.load("envs", "frozenlake")
    with pytest.raises(UserError, match=r"^a step limit of 100,000,000,000 with 8 copies needs .* are free: give a sm"):
        lake.make(lake.Config(step_limit=10**11), 0, "cpu")
