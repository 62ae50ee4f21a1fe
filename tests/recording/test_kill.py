"""kill -9 at random moments, twenty times a family: what is left resumes to the run that was never killed.

A parent imports everything once and forks a child for each attempt, so that a kill costs as much as what it interrupts.
"""

import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from support.resuming import REWARD, differences

KILLS = 20
RUN = ["threads=1", "checkpoint_every=1", "evaluations=4", "evaluate_every=0", "evaluation_episodes=2"]
RUN += ["validation_episodes=2", "measure=latest"]
GSM8K = ["env=gsm8k", REWARD, "env.train=64", "env.test=4", "env.validation=4", "env.rows=4", "env.max_tokens=24"]
PAIRS = ["env=preferences", "env.train=64", "env.test=4", "env.validation=4", "env.rows=4", "env.max_tokens=24"]
FULL_DQN = ["algo.n_step=3", "algo.prioritized=true", "algo.hold=9", "algo.warmup_steps=100", "policy.normalize=true"]
FAMILIES = {
    "q_learning": ["algo=q_learning", "env=frozenlake", "algo.steps=20", "iterations=30"],
    "sarsa": ["algo=sarsa", "env=cliffwalking", "algo.steps=20", "iterations=30"],
    "policy iteration": ["algo=policy_iteration", "env=gridworld", "algo.tolerance=0.01", "iterations=30"],
    "dqn": ["algo=dqn", "env=cartpole", *FULL_DQN, "algo.capacity=300", "algo.steps=16", "iterations=30"],
    "ppo": [
        "algo=ppo",
        "env=cartpole",
        "policy.normalize=true",
        "algo.horizon=64",
        "algo.minibatches=4",
        "iterations=30",
    ],
    "a2c": ["algo=a2c", "env=pendulum", "policy.normalize=true", "algo.normalize_reward=true", "iterations=30"],
    "lunarlander": [
        "algo=ppo",
        "env=lunarlander",
        "algo.horizon=48",
        "algo.minibatches=4",
        "env.rows=2",
        "iterations=30",
    ],
    "groups on control": ["algo=grpo", "env=cartpole", "algo.kl_coef=0.1", "env.rows=4", "iterations=30"],
    "grpo on text": ["algo=grpo", *GSM8K, "algo.group=4", "iterations=20"],
    "ppo on text": ["algo=ppo", *GSM8K, "algo.kl_coef=0.1", "algo.kl_target=1", "algo.kl_horizon=50", "iterations=20"],
    "pairs": ["algo=dpo", *PAIRS, "iterations=20"],
}


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a child, or None where it is still at work when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def start(words: list[str], log: Path) -> int:
    """Fork a child that is one run; what it prints goes into `log`."""
    from rlkit import run

    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = run.main(words)
    finally:
        os._exit(code)


def phase(folder: Path) -> str:
    """Where a kill fell, by what it left behind."""
    if (folder / "checkpoints" / ".new").is_dir():
        return "while writing a checkpoint"
    if not (folder / "before.json").is_file():
        return "before training"
    if not (folder / "checkpoints" / "latest.safetensors").is_file():
        return "before the first checkpoint"
    return "at the end" if list(folder.glob("*model.new")) or (folder / "model").is_dir() else "while training"


def again(words: list[str], folder: Path, log: Path) -> int:
    """Start a run, or go on with it."""
    return start([f"resume={folder}"] if (folder / "config.yaml").is_file() else [*words, f"out={folder}"], log)


def saved(folder: Path) -> int:
    """When the newest checkpoint was written; 0 before there is one."""
    return max((path.stat().st_mtime_ns for path in (folder / "checkpoints").glob("*.safetensors")), default=0)


def torture(words: list[str], folder: Path, seed: str) -> Counter[str]:
    """Kill a run KILLS times at random moments, and let it finish."""
    draw, log, where = random.Random(seed), folder / "log.txt", Counter[str]()
    whole, cut = folder / "whole", folder / "cut"
    began = time.monotonic()
    assert wait(again(words, whole, log), math.inf) == 0, log.read_text()
    stay = 0.2 * (time.monotonic() - began)  # what a child lives on average: longer while it does not come forward
    while sum(where.values()) < KILLS:
        before, child = saved(cut), again(words, cut, log)
        code = wait(child, draw.uniform(0, 2 * stay))
        if code is None:
            os.kill(child, 9)
            os.waitpid(child, 0)
            where[phase(cut)] += 1
            stay *= 1.2 if saved(cut) == before else 0.9
        else:
            assert code == 0, log.read_text()
            assert not differences(whole, cut), differences(whole, cut)
            cut = folder / f"cut-{sum(where.values())}"  # done before it was killed often enough: once more
    assert wait(again(words, cut, log), math.inf) == 0, log.read_text()
    assert not differences(whole, cut), differences(whole, cut)
    return where


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
@pytest.mark.parametrize("family", FAMILIES)
def test_twenty_kills_lose_nothing(family: str, tmp_path: Path) -> None:
    words = [sys.executable, __file__, family, str(tmp_path)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"{family}: {done.stdout}")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    print(dict(torture([*FAMILIES[sys.argv[1]], *RUN], Path(sys.argv[2]), sys.argv[1])))
