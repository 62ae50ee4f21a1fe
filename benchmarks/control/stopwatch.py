"""What every program of these benchmarks measures, in the same way, and the one line of JSON that it prints.

A program is one process of one project: PROGRAM.py '{"algo": "ppo", "env_steps": 100000, "algo.lr": 1e-3, ...}'. The
keys are those of `rlkit.run`; the programs of the peers translate them. Two more belong to the benchmark: with `until`
a greedy evaluation every `every` steps stops the training at that score. Nothing here imports more than the standard
library before the training is over, so that no project pays for it.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Work = dict[str, Any]  # what JSON gave
Act = Callable[[Any], Any]  # one observation to one greedy action, both as Gymnasium has them

IDS = {"cartpole": "CartPole-v1", "pendulum": "Pendulum-v1", "frozenlake": "FrozenLake-v1"}
EPISODES = {"frozenlake": 500}  # of a greedy score, where it is not 20: there an episode is won or lost


class Stopwatch:
    """When the process began, when its training made the first step in an environment, and when it ended.

    The driver says when it started the process (BENCH_BEGAN), so that the interpreter and the imports count.
    """

    def __init__(self) -> None:
        self.began = float(os.environ.get("BENCH_BEGAN", time.time()))
        self.first: float | None = None
        self.ended: float | None = None
        self.touched: float | None = None  # rlkit: the first step at all, of the untouched policy that it measures
        self.processor = 0.0  # seconds of it in the training, which other work on the machine does not change
        self.evaluating = 0.0  # seconds of the evaluations that `until` asks for: on nobody's clock
        self.reached = False  # the score of `until`

    def step(self) -> None:
        """The training is about to make a step in its environments."""
        if self.first is None:
            self.first, self.processor = time.time(), -time.process_time()

    def touch(self) -> None:
        self.touched = time.time()

    def end(self) -> None:
        self.ended = time.time()
        self.processor += time.process_time()

    def watch(self, owner: object, name: str, note: Callable[[], None] | None = None) -> None:
        """Note the first call of a method, then put back what was there: later calls cost what they cost without."""
        original = getattr(owner, name)
        own = name in vars(owner)

        def noting(*args: object, **keys: object) -> object:
            (note or self.step)()
            setattr(owner, name, original) if own else delattr(owner, name)
            return original(*args, **keys)

        setattr(owner, name, noting)

    def arrived(self, act: Act, work: Work) -> bool:
        """Whether the greedy score is that of `until`; the clock stands still meanwhile."""
        before = time.time()
        self.reached = score(act, work["env"]) >= work["until"]
        self.evaluating += time.time() - before
        return self.reached

    def report(self, work: Work, steps: int, score: float, version: str) -> None:
        """Print the one line that the driver reads."""
        assert self.first is not None and self.ended is not None, "nothing was trained: fewer steps than one rollout?"
        line = {
            "steps": steps,
            "start": self.first - self.began,  # seconds from the start of the process to the first step
            "seconds": self.ended - self.first - self.evaluating,  # of the training alone
            "processor": self.processor,
            "score": score,
            "version": version,
            "seed": work["seed"],
            "updates": updates(work, steps),
            "reached": self.reached if "until" in work else None,
            "touched": self.touched and self.touched - self.began,
        }
        print(json.dumps({key: x for key, x in line.items() if x is not None}), flush=True)


def updates(work: Work, steps: int) -> int | None:
    """The optimizer steps of algorithms that learn from a memory, which are what is counted there."""
    if work["algo"] not in ("dqn", "sac", "td3"):
        return None
    each = work["env.rows"] * work["algo.steps"]
    return max(0, steps - int(work["algo.warmup_steps"])) // each * int(work["algo.updates"])


def score(act: Act, env: str) -> float:
    """Mean return of greedy episodes on Gymnasium's own environment, from the same reset seeds for everybody."""
    if env not in IDS:  # of Atari one takes minutes
        return 0.0
    import gymnasium

    played, total, episodes = gymnasium.make(IDS[env]), 0.0, EPISODES.get(env, 20)
    for episode in range(episodes):
        observation, _ = played.reset(seed=10_000 + episode)
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = played.step(act(observation))
            total, done = total + float(reward), terminated or truncated
    return total / episodes


def asked() -> Work:
    """The work that this process was given."""
    work: Work = json.loads(sys.argv[1])
    return work


def one_thread() -> None:
    """OMP_NUM_THREADS=1 comes from the driver; torch is told, too."""
    import torch

    torch.set_num_threads(1)
