"""HalfCheetah-v5 of Gymnasium (needs gymnasium[mujoco]): two legs that run forward as fast as they can."""

from dataclasses import dataclass

import torch

from rlkit.api import Count, Reference
from rlkit.control import ControlEnv

from . import gym

# Uniformly random actions: mean of 150 episodes, ±6 (one standard error). The other end is the best mean return
# in benchmark.md of RL Baselines3 Zoo, which is of version 3: greedy, of one agent trained for 1,000,000 steps.
REFERENCE = Reference(-280.6, 12089.9, "a random policy", "RL Baselines3 Zoo (tqc, v3)")


@dataclass(frozen=True)
class Config:
    rows: Count = 1  # copies played side by side
    step_limit: Count = 1000  # steps after which an episode is truncated


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """HalfCheetah: the reward is the speed, less the torque; an episode lasts until the step limit."""
    reference = REFERENCE if config.step_limit == Config.step_limit else None
    cheetah = gym.Config(config.rows, "HalfCheetah-v5", step_limit=config.step_limit)
    return gym.make(cheetah, seed, device, reference)
