"""Gymnasium's wrappers of vector environments hide what these can do; what is inside counts all the same."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import TransformReward
from support.probes import Draws, make

from rlkit.control import ControlEnv
from rlkit.control.agents import Together
from rlkit.settings import plugins


class Leaving:
    """Agent a leaves after one step, b after three."""

    possible_agents = ("a", "b")
    observation_space, action_space = (lambda self, name: Discrete(4)), (lambda self, name: Discrete(2))

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.at = ["a", "b"], 0
        return {"a": 0, "b": 0}, {}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        self.at += 1
        ends = {name: name == "a" or self.at == 3 for name in self.agents}
        seen, flags = dict.fromkeys(self.agents, self.at), dict.fromkeys(self.agents, False)
        self.agents = [name for name in self.agents if not ends[name]]
        return seen, dict.fromkeys(seen, 1.0), ends, flags, {}


def wrapped(vector: Callable[[int], Any], rows: int, **keys: Any) -> ControlEnv:
    return ControlEnv(lambda n: TransformReward(vector(n), np.negative), rows, **keys)


def carts(n: int) -> SyncVectorEnv:
    one = partial(gymnasium.make, "CartPole-v1", max_episode_steps=20)
    return SyncVectorEnv([one] * n, autoreset_mode=AutoresetMode.DISABLED)


def inside(name: str) -> Callable[[int], Any]:
    return carts if name == "carts" else make(plugins.load("envs", name), rows=2).vector


def test_agents_that_left_wait_for_the_others() -> None:
    env = wrapped(lambda n: Together(Leaving, n, "it"), 2, agents=2)
    rollout = env.rollout(Draws(env), steps=6)
    assert rollout["mask"].tolist() == [[True, False, False] * 2, [True] * 6]
    assert rollout["done"].tolist() == [[True, False, False] * 2, [False, False, True] * 2]
    assert env.evaluate(Draws(env), 3).score.tolist() == [-2.0] * 3


@pytest.mark.parametrize("name", ["carts", "frozenlake"])
def test_each_attempt_has_luck_of_its_own(name: str) -> None:
    env = wrapped(inside(name), 2, luck="own")
    assert env.rollout(Draws(env), repeats=3)["mask"].shape[:2] == torch.Size([2, 3])


@pytest.mark.parametrize(("name", "limit"), [("carts", 20), ("acrobot", 500)])
def test_the_step_limit_is_known(name: str, limit: int) -> None:
    assert wrapped(inside(name), 1).longest == limit
