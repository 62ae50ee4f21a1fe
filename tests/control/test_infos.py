"""Infos of an environment may hold anything: nothing but a mask of actions is read of them."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rlkit.envs import gym
from support.probes import Draws
from test_contract import Good

from rlkit.control import ControlEnv, masks


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


class Told(Good):
    """Says what is allowed, as env=gym reads it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed, options=options)[0], {"action_mask": np.array([1, 0], np.int8)}

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"action_mask": np.array([1, 0], np.int8)}


def test_a_mask_in_the_infos_of_a_vector_environment_is_not_overlooked_without_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    masks._once.cache_clear()

    def played(make: Callable[[], gymnasium.Env[Any, Any]]) -> str:
        env = ControlEnv(lambda n: SyncVectorEnv([make] * n, autoreset_mode=AutoresetMode.DISABLED), 2)
        env.rollout(Draws(env), steps=1)
        return capsys.readouterr().err

    told = [played(make) for make in (Good, lambda: masks.MaskInObservation(Told()), Told, Told)]
    assert [bool(text) for text in told] == [False, False, True, False], "it is said once"
    assert told[2].startswith("the SyncVectorEnv gives action_mask in its infos, which is not read, so all actions are")
