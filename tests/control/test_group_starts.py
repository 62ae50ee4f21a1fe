"""Groups: their attempts begin alike, and share the luck of an episode or have luck of their own."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from support.probes import Chooses, Draws, control, make, same

from rlkit import against
from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.control.numpy_env import Batched
from rlkit.settings import plugins
from rlkit.settings.config import Given

STAY = Chooses(lambda x: torch.zeros(len(x), dtype=torch.long))


class Drift(gymnasium.Env):  # type: ignore[type-arg]
    """A random walk from a random start until it leaves [-3, 3]; all its luck is np_random's."""

    observation_space, action_space = Box(-9, 9, (1,)), Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1)
        return np.array([self.at], dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.at += self.np_random.normal()
        return np.array([self.at], dtype=np.float32), 1.0, abs(self.at) > 3, False, {}


class Own(Drift):
    """Draws from a generator of its own, which no seed reaches."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.np_random = np.random.default_rng()
        self.at = self.np_random.uniform(-1, 1)
        return np.array([self.at], dtype=np.float32), {}


class OwnButSeeded(Drift):
    """Draws from a generator of its own that reset(seed) seeds."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.draw = np.random.default_rng(seed)
        self.at = self.draw.uniform(-1, 1)
        return np.array([self.at], dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.at += self.draw.normal()
        return np.array([self.at], dtype=np.float32), 1.0, abs(self.at) > 3, False, {}


def drifting(one: Any, luck: Any, vector: Any = SyncVectorEnv, rows: int = 4) -> ControlEnv:
    copies = lambda n: vector([lambda: TimeLimit(one(), 200)] * n, autoreset_mode=AutoresetMode.DISABLED)  # noqa: E731
    return ControlEnv(copies, rows, luck=luck)


TABLES: dict[str, dict[str, Any]] = {  # with chance in their steps, whatever is done
    "frozenlake": {},
    "cliffwalking": {"slippery": True, "step_limit": 40},
    "gridworld": {"slip": 0.5},
}


def lucky(name: str, luck: str) -> ControlEnv:
    if name == "drift":
        return drifting(Drift, luck)
    return make(plugins.load("envs", name), rows=4, luck=luck, **TABLES[name])


@pytest.mark.parametrize("name", [*TABLES, "drift"])
def test_luck_is_shared_within_a_group_or_each_attempts_own(name: str) -> None:
    starts_with = {}
    for luck in ("shared", "own"):
        env = lucky(name, luck)
        first, second = (env.rollout(STAY, repeats=6) for _ in range(2))
        for rollout in (first, second):
            starts = rollout["observation"][:, :, 0]
            assert torch.equal(starts, starts[:, :1].expand_as(starts))
            seen = rollout["observation"].flatten(2)
            alike = (seen == seen[:, :1]).all(-1).all(-1)
            assert alike.all() if luck == "shared" else not alike.all()
        starts_with[luck] = first["observation"][:, :, 0]
        again = lucky(name, luck)
        same(again.rollout(STAY, repeats=6), first)  # a function of the seed, row, attempt and start
        resumed = lucky(name, luck)
        resumed.load_state_dict(again.state_dict())
        same(resumed.rollout(STAY, repeats=6), second)
    assert torch.equal(starts_with["shared"], starts_with["own"])  # the reset states are the same with both


def test_a_constant_policy_on_ice_has_groups_of_one_length_with_shared_luck_only() -> None:
    module, spread = plugins.load("envs", "frozenlake"), {}
    for luck in ("shared", "own"):
        length = make(module, rows=16, luck=luck).rollout(STAY, repeats=8)["mask"].sum(-1).double()
        spread[luck] = float(length.std(-1).mean())
    assert spread["shared"] == 0 and spread["own"] > 1


@pytest.mark.slow
def test_worker_processes_give_the_same_luck() -> None:
    envs = [drifting(Drift, "own", vector, rows=1) for vector in (SyncVectorEnv, AsyncVectorEnv)]
    results = [env.rollout(STAY, repeats=2) for env in envs]
    envs[1].close()
    same(*results)


def test_runs_that_differ_in_their_luck_are_measured_on_the_same_episodes() -> None:
    shared, own = (
        Given(env={"name": "frozenlake", "luck": luck, "rows": n}) for luck, n in (("shared", 2), ("own", 3))
    )
    assert against.world(shared) == against.world(own)
    assert against.world(shared) != against.world(Given(env={"name": "frozenlake", "map": "8x8"}))


def test_luck_of_its_own_ends_with_the_group() -> None:
    module = plugins.load("envs", "frozenlake")
    envs = [make(module, rows=3, luck=luck) for luck in ("shared", "own")]
    envs[1].rollout(STAY, repeats=2)
    for env in envs:
        env._starts = 5
    same(*(env.rollout(STAY, steps=None) for env in envs))  # without groups there is one attempt, and one luck


def test_a_table_with_luck_of_its_own_draws_the_same_episode_for_the_same_seed_again() -> None:
    vector = make(plugins.load("envs", "frozenlake")).vector(2)

    def walk() -> list[int]:
        return [int(vector.step(np.zeros(2, dtype=np.int64))[0][0]) for _ in range(30)]

    vector.reset(seed=[1, 1])
    before = walk()
    vector.reset(seed=[1, 1])
    vector.reseed([2, 3])
    assert walk() != before
    vector.reset(seed=[1, 1])
    assert walk() == before


@pytest.mark.parametrize("one", [Own, OwnButSeeded])
def test_luck_that_no_seed_reaches_cannot_be_made_its_own(one: Any) -> None:
    with pytest.raises(UserError, match=r"^env\.luck=own .*self\.np_random.* give env\.luck=shared"):
        drifting(one, "own")


def test_a_vector_environment_without_reseed_is_refused() -> None:
    class Still(Batched):
        def __init__(self, n: int) -> None:
            super().__init__(n, 9, 1, Box(-1, 1, (1,)), Discrete(2))

        def start(self, draw: Any) -> Any:
            return [0.0]

    with pytest.raises(UserError, match=r"^env\.luck=own .* or reseed\(seeds\) of its vector environment"):
        ControlEnv(Still, 2, luck="own")


@pytest.mark.parametrize("name, given", [("gridworld", {}), ("frozenlake", {"slippery": False})])
def test_luck_where_nothing_is_left_to_chance_is_refused(name: str, given: Any) -> None:
    with pytest.raises(UserError, match=r"^env\.luck=own .* leaves nothing to chance"):
        make(plugins.load("envs", name), luck="own", **given)


@pytest.mark.parametrize("ended", [True, False])
def test_a_reset_that_ignores_its_seed_makes_no_groups(ended: bool) -> None:
    env = control(Own, rows=2)
    if ended:  # each copy's first episode is not an exception
        env.rollout(STAY, steps=20)
    with pytest.raises(UserError, match=r"attempts from one start begin in different states.* or use algo=ppo"):
        env.rollout(STAY, repeats=3)


def test_a_first_state_that_is_not_a_number_is_not_taken_for_another_start() -> None:
    class Nan(Drift):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.array([np.nan], dtype=np.float32), {}

    with pytest.raises(FloatingPointError, match="observation"):
        control(Nan).rollout(STAY, repeats=2)


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "acrobot", "mountaincar", "frozenlake", "gridworld"])
def test_our_own_environments_make_groups(name: str) -> None:
    env = make(plugins.load("envs", name), rows=2, step_limit=5)
    starts = env.rollout(Draws(env), repeats=3)["observation"][:, :, 0]
    assert torch.equal(starts, starts[:, :1].expand_as(starts))
