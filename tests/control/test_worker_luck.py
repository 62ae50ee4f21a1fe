"""Copies in processes of their own draw different numbers, also from the global generators."""

import random
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from rlkit.envs import gym
from support.probes import Draws
from torch import Tensor


class Everywhere(gymnasium.Env[Any, Any]):
    """Shows what it was made with, and a draw of each global generator."""

    observation_space, action_space = Box(0, 1, (4,), np.float32), Discrete(2)

    def __init__(self) -> None:
        self.made = random.random()

    def seen(self) -> Any:
        return np.array([self.made, random.random(), np.random.rand(), torch.rand(())], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        return self.seen(), random.random(), bool(np.random.rand() < 0.2), False, {}


def made(seed: int = 0) -> Any:
    return gym.make(gym.Config(rows=3, entry="mine", processes=True), seed, "cpu", factory=Everywhere)


def seen(env: Any, steps: int, repeats: int = 1) -> Tensor:
    found: Tensor = env.rollout(Draws(env), steps=steps, repeats=repeats)["observation"]
    return found


@pytest.mark.slow
def test_copies_draw_different_numbers_and_again_the_same_from_the_runs_seed() -> None:
    envs = [made(), made(), made(1)]
    first, again, other = (seen(env, 9) for env in envs)
    for env in envs:
        env.close()
    assert torch.equal(first, again) and not (first[:, 0] == other[:, 0]).any()
    assert all(len(first[:, 0, part].unique()) == 3 for part in range(4))


@pytest.mark.slow
def test_what_copies_draw_goes_on_in_a_run_that_is_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    env, resumed = made(), made()
    seen(env, 30)
    assert env.state_dict()["past"]["earned"]
    resumed.load_state_dict(env.state_dict())
    assert capsys.readouterr().err.count("\n") == 2  # of a reset in this process, when each was made
    found = [seen(each, 20) for each in (env, resumed)]
    env.close()
    resumed.close()
    assert torch.equal(*found)
