"""An environment whose step computes for 5 ms, as simulators of physics do: CartPole behind a busy wait."""

import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from rlkit.envs import gym

from rlkit.api import Count
from rlkit.control import ControlEnv

SECONDS = 0.005


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side


class Heavy(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Uses a core for so long in each step."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        end = time.thread_time() + SECONDS
        while time.thread_time() < end:
            pass
        return super().step(action)


def copy(**keywords: Any) -> gymnasium.Env[Any, Any]:
    """One copy."""
    made: gymnasium.Env[Any, Any] = Heavy(gymnasium.make("CartPole-v1", **keywords))
    return made


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """All copies in the process that asks."""
    return gym.make(gym.Config(config.rows, "CartPole-v1", step_limit=500), seed, device, factory=copy)
