"""PPO on CartPole against Stable-Baselines3: python benchmarks/ppo_cartpole.py [rounds]

Both train in this process, in turn, on one thread, with the same hyper-parameters; construction and evaluation are not
counted. `batch` is a setting with few updates per step (8 × 128 steps, 4 epochs of 4 minibatches), `zoo` the tuned one
of RL Baselines3 Zoo with many (8 × 32 steps, 20 epochs of 1 minibatch). Needs `pip install -e '.[bench]'`.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from rlkit.loop import train
from rlkit.progress import Progress
from rlkit.recording.log import Log
from rlkit.settings import config
from rlkit.settings.assemble import assemble

STEPS = 51_200
SETTINGS = {
    "batch": {"horizon": 128, "epochs": 4, "minibatches": 4, "lr": 2.5e-4, "gamma": 0.99, "gae_lambda": 0.95},
    "zoo": {"horizon": 32, "epochs": 20, "minibatches": 1, "lr": 1e-3, "gamma": 0.98, "gae_lambda": 0.8},
}


def rlkit_seconds(setting: dict[str, float], seed: int) -> float:
    keys = [f"algo.{key}={value}" for key, value in setting.items()]
    keys += ["algo.schedule=constant", "algo.clip_schedule=constant", f"env_steps={STEPS}", f"seed={seed}"]
    parts = assemble(config.read(["algo=ppo", "env=cartpole", *keys]))
    with tempfile.TemporaryDirectory() as folder, Log(Path(folder), {}, STEPS, "env_steps", quiet=True) as log:
        began = time.perf_counter()
        train(parts.algo, parts.env, parts.run, log, Progress())
        return time.perf_counter() - began


def sb3_seconds(setting: dict[str, float], seed: int) -> float:
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 8, seed=seed),
        n_steps=setting["horizon"],
        batch_size=8 * setting["horizon"] // setting["minibatches"],
        n_epochs=setting["epochs"],
        learning_rate=setting["lr"],
        gamma=setting["gamma"],
        gae_lambda=setting["gae_lambda"],
        seed=seed,
        device="cpu",
    )
    began = time.perf_counter()
    model.learn(STEPS)
    return time.perf_counter() - began


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    for name, setting in SETTINGS.items():
        pairs = [(rlkit_seconds(setting, seed), sb3_seconds(setting, seed)) for seed in range(rounds)]
        ours, theirs = (statistics.median(STEPS / t for t in column) for column in zip(*pairs, strict=True))
        ratios = sorted(b / a for a, b in pairs)
        print(
            f"{name:6} rlkit {ours:8,.0f} steps/s   SB3 {theirs:8,.0f} steps/s   "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
