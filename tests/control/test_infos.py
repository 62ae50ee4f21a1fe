"""Infos of an environment may hold anything: nothing but a mask of actions is read of them."""

from typing import Any

import numpy as np
import pytest
from rlkit.envs import gym
from support.probes import Draws
from test_contract import Good


class Various(Good):
    """What its infos hold differs from step to step, and between copies."""

    def step(self, action: Any) -> Any:
        observation, reward, *ends, _ = super().step(action)
        number = int(self.np_random.integers(3))
        info = [{"winner": None, "path": np.zeros(2)}, {"winner": 1, "path": np.zeros(3)}, {"winner": {"a": 1}}]
        return observation, reward, *ends, info[number]


@pytest.mark.parametrize("processes", [False, True])
def test_a_key_of_another_shape_or_type_in_each_copy_ends_nothing(processes: bool) -> None:
    env = gym.make(gym.Config(rows=3, entry="mine", processes=processes), 0, "cpu", factory=Various)
    assert env.rollout(Draws(env), steps=30)["mask"].all()
    env.close()
