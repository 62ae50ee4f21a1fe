"""Hopper-v5 of Gymnasium (needs gymnasium[mujoco]): one leg that hops forward without falling."""

from dataclasses import dataclass

import torch

from rlkit.api import Count, Reference
from rlkit.control import ControlEnv

from . import gym

# Uniformly random actions: mean of 3,000 episodes, ±0.3 (one standard error). The other end is the best mean return
# in benchmark.md of RL Baselines3 Zoo, which is of version 3: greedy, of one agent trained for 1,000,000 steps.
REFERENCE = Reference(17.5, 3754.2, "a random policy", "RL Baselines3 Zoo (tqc, v3)")


@dataclass(frozen=True)
class Config:
    rows: Count = 1  # copies played side by side
    step_limit: Count = 1000  # steps after which an episode is truncated


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """Hopper: the reward is 1 a step and the speed, less the torque; an episode ends with a fall."""
    reference = REFERENCE if config.step_limit == Config.step_limit else None
    hopper = gym.Config(config.rows, "Hopper-v5", step_limit=config.step_limit)
    return gym.make(hopper, seed, device, reference)
