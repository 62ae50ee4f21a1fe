"""How many episodes an environment plays unless told."""

from collections.abc import Mapping

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlkit.control import ControlEnv


class Few(ControlEnv):
    splits: Mapping[str, int] = {"train": 2, "validation": 3, "test": 4}


def lake() -> gymnasium.Env:
    return gymnasium.make("FrozenLake-v1", max_episode_steps=5)


def test_an_environment_plays_as_many_episodes_as_its_own_splits_have() -> None:
    env = Few(lambda n: SyncVectorEnv([lake] * n, autoreset_mode=AutoresetMode.DISABLED), 1)
    to_the_left = torch.zeros(16, dtype=torch.int64)
    assert len(env.evaluate(to_the_left, split="validation").score) == 3
    assert len(env.evaluate(to_the_left, split="test").score) == 4
