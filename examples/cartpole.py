"""Train PPO on CartPole, and act with what was learned: python examples/cartpole.py [KEY=VALUE ...]"""

import sys

import gymnasium

import rlkit

keys = dict(word.split("=", 1) for word in sys.argv[1:])  # as on a command line: env_steps=2000
run = rlkit.train("ppo", "cartpole", **{"seed": 0, "env_steps": 40_000, **keys})

env = gymnasium.make("CartPole-v1")
observation, _ = env.reset(seed=0)
score, done = 0.0, False
while not done:
    action = run.policy.predict(observation)
    observation, reward, terminated, truncated, _ = env.step(action)
    score, done = score + float(reward), terminated or truncated
print(f"this episode: {score:.0f}")
print(f"100 episodes: {run.evaluate(episodes=100)['greedy']['mean']:.0f}")
