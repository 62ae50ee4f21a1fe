"""Pendulum-v1 as a batch in numpy: step by step Gymnasium's own, several times faster."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box

from rlkit.api import Count, Reference
from rlkit.control import Array, Batched, ControlEnv, Painter

GRAVITY = 10.0  # of a rod of 1 kg and 1 m, as Gymnasium rounds it
TAU = 0.05  # seconds between two states
SPEED, TORQUE = 8.0, 2.0  # the most there is
HIGH = np.array([1.0, 1.0, SPEED], dtype=np.float32)
START = np.array([np.pi, 1.0])
# Uniformly random actions: mean of 100,000 episodes, ±0.9 (one standard error). The other end is the best mean return
# of A2C and PPO in benchmark.md of RL Baselines3 Zoo: greedy, of one trained agent. SAC has -157.0, TD3 -151.9 there.
REFERENCE = Reference(-1228.9, -163.0, "a random policy", "RL Baselines3 Zoo (a2c)")


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    step_limit: Count = 200  # steps after which an episode is truncated


class Pendulum(Batched):
    """Rods on a motor: the state is θ (0: upright) and θ̇, observed as cos θ, sin θ, θ̇; the action is a torque u.

    The reward is -(θ² + 0.1 θ̇² + 0.001 u²) of the state before the step, θ in [-π, π). Never terminated.
    """

    picture = Painter("Pendulum-v1")

    def __init__(self, n: int, step_limit: int = 200) -> None:
        super().__init__(n, step_limit, 2, Box(-HIGH, HIGH), Box(-TORQUE, TORQUE, (1,)))
        self._never = np.zeros(n, dtype=bool)

    def start(self, draw: np.random.Generator) -> Array:
        return draw.uniform(-START, START)

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Accelerate, then turn with the new velocity."""
        angle, spin = self.state
        torque = np.minimum(np.maximum(actions[:, 0], -TORQUE), TORQUE)
        wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = np.square(wrapped) + 0.1 * np.square(spin) + 0.001 * np.square(torque)
        spin += (1.5 * GRAVITY * np.sin(angle) + 3.0 * torque) * TAU
        np.minimum(np.maximum(spin, -SPEED, out=spin), SPEED, out=spin)
        angle += spin * TAU
        return -cost, self._never

    def observe(self) -> Array:
        angle, spin = self.state
        observation = np.empty((self.num_envs, 3), dtype=np.float32)
        observation[:, 0], observation[:, 1], observation[:, 2] = np.cos(angle), np.sin(angle), spin
        return observation


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """Pendulum: swing a rod up with a weak motor and hold it there; the action is continuous."""
    reference = REFERENCE if config.step_limit == Config.step_limit else None
    source = "Pendulum-v1 in numpy"
    return ControlEnv(lambda n: Pendulum(n, config.step_limit), config.rows, seed, device, source, reference=reference)
