"""CartPole-v1 as a batch in numpy: step by step Gymnasium's own, several times faster."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from rlkit.api import Count, Reference
from rlkit.control import Array, Batched, ControlEnv, Painter

GRAVITY, POLE_MASS, TOTAL_MASS, HALF_POLE = 9.8, 0.1, 1.1, 0.5
POLE_MOMENT = POLE_MASS * HALF_POLE
TAU = 0.02  # seconds between two states
LIMITS = np.array([[2.4], [12 * 2 * np.pi / 360]])  # of x and θ
FORCE = np.array([-10.0, 10.0])
HIGH = np.array([2 * LIMITS[0, 0], np.inf, 2 * LIMITS[1, 0], np.inf], dtype=np.float32)
# Uniformly random actions: mean of 100,000 episodes, ±0.04 (one standard error). The other end is the
# best mean return in benchmark.md of RL Baselines3 Zoo, and the most there can be.
REFERENCE = Reference(22.2, 500.0, "a random policy", "RL Baselines3 Zoo (ppo)")


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    step_limit: Count = 500  # steps after which an episode is truncated


class CartPole(Batched):
    """Carts with poles (Barto, Sutton & Anderson 1983): the state is x, ẋ, θ, θ̇, the reward 1 a step.

    Terminated beyond |x| = 2.4 or |θ| = 12°.
    """

    picture = Painter("CartPole-v1")

    def __init__(self, n: int, step_limit: int = 500) -> None:
        super().__init__(n, step_limit, 4, Box(-HIGH, HIGH), Discrete(2))
        self._change, self._one = np.empty((4, n)), np.ones(n, dtype=np.float32)

    def start(self, draw: np.random.Generator) -> Array:
        return draw.uniform(-0.05, 0.05, 4)

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """One Euler step; the order of operations is Gymnasium's, so that the numbers are, too."""
        state, change = self.state, self._change
        angle, spin = state[2], state[3]
        cos, sin = np.cos(angle), np.sin(angle)
        push = (FORCE[actions] + POLE_MOMENT * np.square(spin) * sin) / TOTAL_MASS
        inertia = HALF_POLE * 4.0 / 3.0 - POLE_MOMENT * np.square(cos) / TOTAL_MASS
        angular = (GRAVITY * sin - cos * push) / inertia
        change[::2], change[3] = state[1::2], angular
        change[1] = push - POLE_MOMENT * angular * cos / TOTAL_MASS
        state += TAU * change
        outside = np.abs(state[::2]) > LIMITS
        return self._one, outside[0] | outside[1]


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """CartPole: keep a pole upright by pushing its cart left or right."""
    reference = REFERENCE if config.step_limit == Config.step_limit else None
    source = "CartPole-v1 in numpy"
    return ControlEnv(lambda n: CartPole(n, config.step_limit), config.rows, seed, device, source, reference=reference)
