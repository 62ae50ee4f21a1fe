"""Vector environments that hand out one and the same array again and again."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from support.probes import Chooses

from rlkit.control import ControlEnv
from rlkit.control.vector import Vector


class Counter(gymnasium.Env):  # type: ignore[type-arg]
    """Shows its number of steps; worth as much; terminated after five."""

    observation_space, action_space = Box(0, 10, (1,)), Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.full(1, self.steps, dtype=np.float32), float(self.steps), self.steps == 5, False, {}


class Reused(Vector):
    """As a batched environment may be written: every array that it returns is one that it goes on writing to."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, n: int) -> None:
        self.num_envs, self.single_observation_space, self.single_action_space = n, Box(0, 10, (1,)), Discrete(2)
        self.steps, self.reward = np.zeros((n, 1), dtype=np.float32), np.zeros(n)
        self.over, self.cut = np.zeros((2, n), dtype=bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        rows = np.ones(self.num_envs, dtype=bool) if options is None else options["reset_mask"]
        self.steps[rows], self.reward[rows], self.over[rows], self.cut[rows] = 0, 0, False, False
        return self.steps, {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        self.reward[:] = self.steps[:, 0]
        self.over[:], self.cut[:] = self.reward == 5, self.reward == 3
        return self.steps, self.reward, self.over, self.cut, {}


def counting(vector: Any, limit: int, **keys: Any) -> ControlEnv:
    return ControlEnv(lambda n: vector([lambda: TimeLimit(Counter(), limit)] * n, copy=False, **keys), rows=2)


VECTORS = {"sync": SyncVectorEnv, "async": AsyncVectorEnv, "pipes": partial(AsyncVectorEnv, shared_memory=False)}


@pytest.mark.parametrize("limit", [3, 9])  # cut after 3 steps, or terminated after 5
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("vector", ["sync", *(pytest.param(x, marks=pytest.mark.slow) for x in VECTORS if x != "sync")])
def test_the_successor_of_a_last_step_is_never_the_next_episodes_first_state(
    vector: str, mode: AutoresetMode, limit: int
) -> None:
    if vector != "sync" and mode is AutoresetMode.SAME_STEP:
        pytest.skip("refused: see test_worker_processes.py")
    env = counting(VECTORS[vector], limit, autoreset_mode=mode)
    rollout = env.rollout(Chooses(lambda x: torch.zeros(len(x), dtype=torch.long)), steps=16)
    env.close()
    acted, last = rollout["mask"][0], min(limit, 5)
    after = rollout["next_observation"][0, :, 0][acted].tolist()
    assert after == [float(t % last + 1) for t in range(len(after))] and len(after) >= 10
    assert rollout["observation"][0, :, 0][acted].tolist() == [x - 1 for x in after]
    assert rollout["reward"][0][acted].tolist() == after
    assert rollout["done"][0][acted].tolist() == [x == last for x in after]


def test_rewards_and_ends_that_a_reset_overwrites_are_those_of_the_step() -> None:
    env = ControlEnv(Reused, rows=2)
    rollout = env.rollout(Chooses(lambda x: torch.zeros(len(x), dtype=torch.long)), steps=7)
    for key in ("next_observation", "reward"):
        assert rollout[key][0].flatten().tolist() == [1, 2, 3, 1, 2, 3, 1], key
    assert rollout["done"][0].tolist() == [False, False, True] * 2 + [False] and not rollout["terminated"].any()
