"""LunarLander-v3 of Gymnasium (needs rlkit[box2d]): land between two flags, softly and with little fuel."""

from dataclasses import dataclass

import torch

from rlkit.api import Count
from rlkit.control import ControlEnv

from . import gym


@dataclass(frozen=True)
class Config:
    rows: Count = 16  # copies played side by side
    continuous: bool = False  # two throttles in [-1, 1] in place of four actions
    step_limit: Count = 1000  # steps after which an episode is truncated


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """LunarLander: the reward is what a step gains in position, speed and attitude, -100 for a crash, +100 at rest."""
    kwargs = {"continuous": config.continuous}
    return gym.make(gym.Config(config.rows, "LunarLander-v3", kwargs, config.step_limit), seed, device)
