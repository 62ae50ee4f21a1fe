"""Train PPO with a memory to find its way in a T-maze: python examples/own_memory.py [KEY=VALUE ...]"""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import rlkit


class Maze(gymnasium.Env):
    """A sign at the start says whether to turn left or right at the end of a corridor of ten cells."""

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(3)  # left, right, on

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.side = 0, int(self.np_random.integers(2))
        return np.array([2 * self.side - 1, 0], np.float32), {}

    def step(self, action):
        turned, self.at = self.at == 10 and action < 2, min(self.at + (action == 2), 10)
        return np.array([0, self.at == 10], np.float32), float(turned and action == self.side), bool(turned), False, {}


keys = {"env_steps": 100_000, "env.step_limit": 40, "algo.lr": 1e-3, "policy.memory": "gru", "algo.entropy_coef": 0.02}
run = rlkit.train("ppo", env=Maze, **{**keys, **dict(word.split("=", 1) for word in sys.argv[1:])})
print(f"right turns: {run.evaluate(episodes=100)['greedy']['mean']:.2f}")
