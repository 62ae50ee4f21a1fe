"""Steps per second of our environments against Gymnasium's own: python benchmarks/envs.py [rows] [rounds]

Both are stepped in this process, in turn, with the same uniform random actions through the same `Copies` that training
uses, resets included; Gymnasium's are the copies of a SyncVectorEnv. The time is that of the processor for one call,
which steps all rows; the median over the rounds. LunarLander is Gymnasium's in both columns: it shows the noise.
"""

import statistics
import sys
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rlkit.control import Copies
from rlkit.settings import plugins

CALLS = 1000  # steps of all rows in a round
IDS = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountaincar": "MountainCar-v0",
    "pendulum": "Pendulum-v1",
    "lunarlander": "LunarLander-v3",
    "frozenlake": "FrozenLake-v1",
    "cliffwalking": "CliffWalking-v1",
    "taxi": "Taxi-v4",
}


def ours(name: str, rows: int) -> VectorEnv:
    module = plugins.load("envs", name)
    return module.make(module.Config(rows=rows), 0, "cpu").vector(rows)


def theirs(name: str, rows: int) -> VectorEnv:
    def one() -> gymnasium.Env:
        return gymnasium.make(IDS[name], disable_env_checker=True)

    return SyncVectorEnv([one] * rows, autoreset_mode=AutoresetMode.DISABLED)


def microseconds(vector: VectorEnv, seed: int) -> float:
    """Of one call, over a round."""
    space, rng, rows = vector.single_action_space, np.random.default_rng(seed), vector.num_envs
    if isinstance(space, Discrete):
        actions = rng.integers(0, space.n, (CALLS, rows))
    else:
        actions = rng.uniform(space.low, space.high, (CALLS, rows, *space.shape)).astype(np.float32)
    seeds = iter(range(rows, 10**9))
    copies = Copies(vector, lambda row: next(seeds))
    copies.reset(range(rows))
    began = time.process_time()
    for action in actions:
        copies.step(action)
    return (time.process_time() - began) / CALLS * 1e6


def main(rows: int, rounds: int) -> None:
    print(f"{rows} rows{'rlkit':>12} µs/call{'Gymnasium':>12} µs/call{'rlkit':>12} steps/s{'ratio':>9}")
    for name in IDS:
        pair = ours(name, rows), theirs(name, rows)
        times = [[microseconds(vector, seed) for vector in pair] for seed in range(rounds)]
        a, b = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name:12}{a:8.1f}{b:20.1f}{rows / a * 1e6:25,.0f}{b / a:16.1f}")


if __name__ == "__main__":
    main(*(int(x) for x in [*sys.argv[1:], *("8", "5")[len(sys.argv) - 1 :]]))
