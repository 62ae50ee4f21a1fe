"""Train PPO on a Gymnasium environment of your own: python examples/own_environment.py [KEY=VALUE ...]"""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import rlkit


class Corridor(gymnasium.Env):
    """Walk right to the end of a corridor; each step costs 1."""

    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(8))
        return np.array([self.at / 10], np.float32), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        return np.array([self.at / 10], np.float32), -1.0, self.at >= 10, False, {}


keys = {"env_steps": 16_000, "env.step_limit": 50, "algo.lr": 3e-3}
run = rlkit.train("ppo", env=Corridor, **{**keys, **dict(word.split("=", 1) for word in sys.argv[1:])})
print("actions from left to right:", run.policy.predict(np.linspace(0, 0.9, 10)[:, None]))
