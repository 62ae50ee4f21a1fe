"""LunarLander-v3 of Gymnasium (needs gymnasium[box2d]): land between two flags, softly and with little fuel."""

from dataclasses import dataclass

import torch

from rlkit.api import Count, Reference
from rlkit.control import ControlEnv, Luck

from . import gym

# Uniformly random actions: mean of 10,000 episodes, ±1.3 (one standard error). The other end is the best mean return of
# A2C, DQN and PPO in benchmark.md of RL Baselines3 Zoo, which is of version 2: greedy, of one trained agent. With
# continuous actions TQC has 278.0 there.
REFERENCES = {  # by `continuous`
    False: Reference(-183.2, 242.1, "a random policy", "RL Baselines3 Zoo (ppo, v2)"),
    True: Reference(-213.7, 270.9, "a random policy", "RL Baselines3 Zoo (ppo, v2)"),
}


@dataclass(frozen=True)
class Config:
    rows: Count = 16  # copies played side by side
    continuous: bool = False  # continuous actions: two throttles in [-1, 1] in place of four actions
    step_limit: Count = 1000  # steps after which an episode is truncated
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """LunarLander: the reward is what a step gains in position, speed and attitude, -100 for a crash, +100 at rest."""
    kwargs = {"continuous": config.continuous}
    reference = REFERENCES[config.continuous] if config.step_limit == Config.step_limit else None
    lander = gym.Config(config.rows, "LunarLander-v3", kwargs, step_limit=config.step_limit, luck=config.luck)
    return gym.make(lander, seed, device, reference)
