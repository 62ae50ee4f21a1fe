"""MountainCar-v0 as a batch in numpy: step by step Gymnasium's own, several times faster."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from rlkit.api import Count, Reference
from rlkit.control import Array, Batched, ControlEnv, Painter

LEFT, RIGHT, GOAL = -1.2, 0.6, 0.5  # the walls and the flag
SPEED = 0.07  # the most there is
FORCE, GRAVITY = 0.001, 0.0025
# Uniformly random actions: none of 10,000 episodes came to the flag. The other end is the best mean
# return in benchmark.md of RL Baselines3 Zoo: greedy, of one trained agent.
REFERENCE = Reference(-200.0, -100.8, "a random policy", "RL Baselines3 Zoo (dqn)")


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    step_limit: Count = 200  # steps after which an episode is truncated


class MountainCar(Batched):
    """Weak cars in a valley (Moore 1990): the state is position and velocity, the reward -1 a step.

    Terminated at the flag, position 0.5. The left wall stops the car.
    """

    picture = Painter("MountainCar-v0")

    def __init__(self, n: int, step_limit: int = 200) -> None:
        low, high = np.array([[LEFT, -SPEED], [RIGHT, SPEED]], dtype=np.float32)
        super().__init__(n, step_limit, 2, Box(low, high), Discrete(3))
        self._cost = np.full(n, -1.0, dtype=np.float32)

    def start(self, draw: np.random.Generator) -> tuple[float, float]:
        return draw.uniform(-0.6, -0.4), 0.0

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Accelerate, then move with the new velocity."""
        position, velocity = self.state
        velocity += (actions - 1) * FORCE - GRAVITY * np.cos(3 * position)
        np.minimum(np.maximum(velocity, -SPEED, out=velocity), SPEED, out=velocity)
        position += velocity
        np.minimum(np.maximum(position, LEFT, out=position), RIGHT, out=position)
        velocity[(position == LEFT) & (velocity < 0)] = 0.0
        return self._cost, (position >= GOAL) & (velocity >= 0)


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """MountainCar: swing a car that is too weak for the slope up to the flag, in as few steps as possible."""
    reference = REFERENCE if config.step_limit == Config.step_limit else None
    source = "MountainCar-v0 in numpy"
    return ControlEnv(
        lambda n: MountainCar(n, config.step_limit), config.rows, seed, device, source, reference=reference
    )
