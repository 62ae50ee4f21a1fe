"""CartPole-v1 as a batch in numpy: step by step Gymnasium's own, several times faster."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlkit.api import Count
from rlkit.control import ControlEnv

GRAVITY, POLE_MASS, TOTAL_MASS, HALF_POLE = 9.8, 0.1, 1.1, 0.5
POLE_MOMENT = POLE_MASS * HALF_POLE
TAU = 0.02  # seconds between two states
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * 2 * np.pi / 360
FORCE = np.array([-10.0, 10.0])


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    step_limit: Count = 500  # steps after which an episode is truncated


class CartPole(VectorEnv):
    """`n` carts with poles (Barto, Sutton & Anderson 1983), state [4, n] in float64: x, ẋ, θ, θ̇; reward 1 a step.

    Terminated beyond |x| = 2.4 or |θ| = 12°, truncated at the step limit; never resets itself.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, n: int, step_limit: int = 500) -> None:
        high = np.array([2 * X_LIMIT, np.inf, 2 * ANGLE_LIMIT, np.inf], dtype=np.float32)
        self.num_envs, self.step_limit = n, step_limit
        self.single_observation_space, self.single_action_space = Box(-high, high), Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.state, self.steps = np.zeros((4, n)), np.zeros(n, dtype=np.int64)
        self._start, self._seeds = np.zeros((4, n)), [-1] * n  # drawn anew only for a new seed
        self._derivative, self._one = np.empty((4, n)), np.ones(n, dtype=np.float32)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the rows of `options["reset_mask"]` (all without one) from one seed each, as Gymnasium draws it."""
        rows = range(self.num_envs) if options is None else np.flatnonzero(options["reset_mask"])
        for row in rows:
            if self._seeds[row] != seed[row]:
                self._seeds[row] = seed[row]
                self._start[:, row] = np.random.Generator(np.random.PCG64(seed[row])).uniform(-0.05, 0.05, 4)
            self.state[:, row], self.steps[row] = self._start[:, row], 0
        return self.state.T.astype(np.float32), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One Euler step; the order of operations is Gymnasium's, so that the numbers are, too."""
        x, velocity, angle, spin = self.state
        cos, sin = np.cos(angle), np.sin(angle)
        push = (FORCE[actions] + POLE_MOMENT * np.square(spin) * sin) / TOTAL_MASS
        inertia = HALF_POLE * (4.0 / 3.0 - POLE_MASS * np.square(cos) / TOTAL_MASS)
        angular = (GRAVITY * sin - cos * push) / inertia
        change = self._derivative
        change[0], change[2], change[3] = velocity, spin, angular
        change[1] = push - POLE_MOMENT * angular * cos / TOTAL_MASS
        self.state += TAU * change
        self.steps += 1
        terminated = (np.abs(x) > X_LIMIT) | (np.abs(angle) > ANGLE_LIMIT)
        return self.state.T.astype(np.float32), self._one, terminated, self.steps >= self.step_limit, {}


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """CartPole: keep a pole upright by pushing its cart left or right."""
    return ControlEnv(lambda n: CartPole(n, config.step_limit), config.rows, seed, device, "CartPole-v1 in numpy")
