"""Acrobot-v1 as a batch in numpy: step by step Gymnasium's own, several times faster."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from rlkit.api import Count, Reference
from rlkit.control import Array, Batched, ControlEnv, Painter

GRAVITY = 9.8
SINES = np.array([[1.5 * GRAVITY], [0.5], [0.5 * GRAVITY]])  # what multiplies sin θ₁, sin θ₂, sin(θ₁ + θ₂)
TAU = 0.2  # seconds between two states
SPEED = np.array([[4 * np.pi], [9 * np.pi]])  # maximum velocity of each joint
HIGH = np.array([1, 1, 1, 1, 4 * np.pi, 9 * np.pi], dtype=np.float32)
# Uniformly random actions: mean of 10,000 episodes, ±0.1 (one standard error). The other end is the best mean return of
# A2C, DQN and PPO in benchmark.md of RL Baselines3 Zoo: greedy, of one trained agent. QR-DQN has -69.1 there.
REFERENCE = Reference(-498.8, -73.5, "a random policy", "RL Baselines3 Zoo (ppo)")


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    step_limit: Count = 500  # steps after which an episode is truncated


class Acrobot(Batched):
    """Two links on a bar with a motor between them (Sutton 1996): the state is θ₁, θ₂, θ̇₁, θ̇₂ (0: hanging down).

    The observation is cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂. The reward is -1 a step and 0 for the last one, when
    the tip is higher than the bar by one link: -cos θ₁ - cos(θ₁ + θ₂) > 1.
    """

    picture = Painter("Acrobot-v1")

    def __init__(self, n: int, step_limit: int = 500) -> None:
        super().__init__(n, step_limit, 4, Box(-HIGH, HIGH), Discrete(3))
        self._angles, self._sines = np.empty((3, n)), SINES.repeat(n, axis=1)  # repeated: broadcasting is slower

    def start(self, draw: np.random.Generator) -> Array:
        return draw.uniform(-0.1, 0.1, 4).astype(np.float32)

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """One step of Runge and Kutta's fourth-order method; then angles are wrapped and velocities bounded."""
        state, torque = self.state, actions - 1.0
        k1 = self._derivative(state, torque)
        k2 = self._derivative(state + TAU / 2 * k1, torque)
        k3 = self._derivative(state + TAU / 2 * k2, torque)
        k4 = self._derivative(state + TAU * k3, torque)
        state += TAU / 6 * (k1 + 2 * (k2 + k3) + k4)
        angles, speeds = state[:2], state[2:]
        angles -= 2 * np.pi * np.rint(angles / (2 * np.pi))
        np.minimum(np.maximum(speeds, -SPEED, out=speeds), SPEED, out=speeds)
        terminated = np.cos(angles[0]) + np.cos(angles[0] + angles[1]) < -1.0
        return terminated - 1.0, terminated

    def _derivative(self, state: Array, torque: Array) -> Array:
        """Sutton & Barto's equations for links of 1 kg, 1 m and 1 kg m², each with its center of mass half way."""
        spin1, angles = state[2], self._angles
        angles[:2], angles[2] = state[:2], state[0] + state[1]
        weight, half, phi2 = self._sines * np.sin(angles)
        cos2 = np.cos(state[1])
        d1, d2 = 3.5 + cos2, 1.25 + 0.5 * cos2
        centrifugal = half * np.square(spin1)
        phi1 = weight + phi2 + centrifugal - half * np.square(spin1 + state[3])
        ratio = d2 / d1
        change = np.empty_like(state)
        change[:2] = state[2:]
        change[3] = (torque + ratio * phi1 - centrifugal - phi2) / (1.25 - ratio * d2)
        change[2] = -(phi1 / d1 + ratio * change[3])
        return change

    def observe(self) -> Array:
        angles = self.state[:2]
        observation = np.empty((self.num_envs, 6), dtype=np.float32)
        observation[:, 0:4:2], observation[:, 1:4:2] = np.cos(angles).T, np.sin(angles).T
        observation[:, 4:] = self.state[2:].T
        return observation


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """Acrobot: swing the tip of two links up, driven only at the joint between them, in as few steps as possible."""
    reference = REFERENCE if config.step_limit == Config.step_limit else None
    source = "Acrobot-v1 in numpy"
    return ControlEnv(lambda n: Acrobot(n, config.step_limit), config.rows, seed, device, source, reference=reference)
