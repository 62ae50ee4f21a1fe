"""Train PPO on a grid world with a network of your own: python examples/own_network.py [KEY=VALUE ...]"""

import sys

from torch import nn

import rlkit


class Network(nn.Module):
    """Convolutions in front of the layers of policy.hidden."""

    def __init__(self, space):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(space.shape[-1], 16, 3), nn.ReLU(), nn.Flatten())

    def forward(self, cells):  # [N, 7, 7, 20] bits
        return self.layers(cells.float().movedim(-1, 1))


make = Network  # what policy.encoder calls with the environment's observation space

if __name__ == "__main__":
    keys = {"env.id": "MiniGrid-Empty-5x5-v0", "env_steps": 30_000, "policy.encoder": __file__}
    run = rlkit.train("ppo", "minigrid", **{**keys, **dict(word.split("=", 1) for word in sys.argv[1:])})
    print(f"100 episodes: {run.evaluate(episodes=100)['greedy']['mean']:.2f}")
