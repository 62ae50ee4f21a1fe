"""Train PPO on observations with several parts: python examples/own_spaces.py [KEY=VALUE ...]"""

import sys

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

import rlkit


class Sorting(gymnasium.Env):
    """Put a parcel on the belt of its color, at the speed of its weight; an episode is one parcel."""

    observation_space = Dict({"color": Discrete(3), "weight": Box(0, 1, (1,), np.float32)})
    action_space = MultiDiscrete([3, 2])  # belt, speed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = {"color": self.np_random.integers(3), "weight": self.np_random.random(1, np.float32)}
        return self.seen, {}

    def step(self, action):
        right = [action[0] == self.seen["color"], action[1] == (self.seen["weight"][0] < 0.5)]
        return self.seen, float(np.mean(right)), True, False, {}


keys = {"env_steps": 30_000, "algo.lr": 3e-3}
run = rlkit.train("ppo", env=Sorting, **{**keys, **dict(word.split("=", 1) for word in sys.argv[1:])})
print("belt and speed of a light parcel:", run.policy.predict({"color": 2, "weight": np.array([0.1])}))
