"""Train PPO on CartPole with a wrapper of your own: python examples/own_wrapper.py [KEY=VALUE ...]"""

import sys

import gymnasium

import rlkit


class Middle(gymnasium.Wrapper):
    """The cart earns 1 a step only where it is near the middle."""

    def step(self, action):
        seen, _, terminated, truncated, info = self.env.step(action)
        return seen, float(abs(seen[0]) < 0.3), terminated, truncated, info


def make(**kwargs):
    """One copy."""
    return Middle(gymnasium.make("CartPole-v1", **kwargs))


keys = {"env_steps": 60_000, "algo.lr": 1e-3}
run = rlkit.train("ppo", env=make, **{**keys, **dict(word.split("=", 1) for word in sys.argv[1:])})
print(f"steps in the middle, of 500: {run.evaluate(episodes=100)['greedy']['mean']:.0f}")
