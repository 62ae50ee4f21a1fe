"""kill -9 and signals at random moments, and at random writes: what is left resumes to the run that was left alone.

A parent imports everything once and forks a child for each attempt, so that a kill costs as much as what it interrupts.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.resuming import REWARD, differences

TIMES, WRITES = 2, 2  # kills of each family at moments drawn evenly, and before or after a write drawn evenly
SIGNALS = (signal.SIGTERM, signal.SIGINT)  # each once
QUICK = 4  # kills of a short run of one family, all at writes
RUN = ["threads=1", "checkpoint_every=1", "evaluations=4", "evaluate_every=0", "evaluation_episodes=2"]
RUN += ["validation_episodes=2", "measure=latest"]
GSM8K = ["env=gsm8k", REWARD, "env.train=64", "env.test=4", "env.validation=4", "env.rows=4", "env.max_tokens=24"]
PAIRS = ["env=preferences", "env.train=64", "env.test=4", "env.validation=4", "env.rows=4", "env.max_tokens=24"]
FULL_DQN = ["algo.n_step=3", "algo.prioritized=true", "algo.hold=9", "algo.warmup_steps=100", "policy.normalize=true"]
FULL_SAC = [
    "algo.n_step=3",
    "algo.prioritized=true",
    "algo.warmup_steps=100",
    "policy.normalize=true",
    "policy.hidden=8",
]
SCREENS = ["env=gym", "env.entry=support.screens:Screen", "env.wrappers=FrameStackObservation", "env.rows=4"]
SCREENS += ["env.wrapper_kwargs.FrameStackObservation.stack_size=2", "policy.encoder=flat", "policy.hidden=8"]
IN_FILES = ["algo.storage=OUT/ring", "algo.capacity=300", "algo.steps=16", "iterations=30"]  # full after 5 iterations
IN_FILES += ["checkpoint_every=1000"]  # so that only the ring asks for one
FAMILIES = {
    "q_learning": ["algo=q_learning", "env=frozenlake", "algo.steps=20", "iterations=30"],
    "sarsa": ["algo=sarsa", "env=cliffwalking", "algo.steps=20", "iterations=30"],
    "policy iteration": ["algo=policy_iteration", "env=gridworld", "algo.tolerance=0.01", "iterations=30"],
    "dqn": ["algo=dqn", "env=cartpole", *FULL_DQN, "algo.capacity=300", "algo.steps=16", "iterations=30"],
    "sac": ["algo=sac", "env=pendulum", *FULL_SAC, "algo.capacity=300", "algo.steps=16", "iterations=30"],
    "dqn in files": ["algo=dqn", *SCREENS, "algo.n_step=3", "algo.warmup_steps=100", "algo.batch_size=8", *IN_FILES],
    "sac in files": ["algo=sac", "env=pendulum", *FULL_SAC, *IN_FILES],
    "td3 in files": ["algo=td3", "env=pendulum", "algo.warmup_steps=100", "policy.hidden=8", *IN_FILES],
    "ppo": [
        "algo=ppo",
        "env=cartpole",
        "policy.normalize=true",
        "algo.horizon=64",
        "algo.minibatches=4",
        "iterations=12",
    ],
    "a2c": ["algo=a2c", "env=pendulum", "policy.normalize=true", "algo.normalize_reward=true", "iterations=12"],
    "lunarlander": [
        "algo=ppo",
        "env=lunarlander",
        "algo.horizon=48",
        "algo.minibatches=4",
        "env.rows=2",
        "iterations=12",
    ],
    "groups on control": ["algo=grpo", "env=cartpole", "algo.kl_coef=0.1", "env.rows=4", "iterations=12"],
    "grpo on text": ["algo=grpo", *GSM8K, "algo.group=4", "iterations=12"],
    "ppo on text": ["algo=ppo", *GSM8K, "algo.kl_coef=0.1", "algo.kl_target=1", "algo.kl_horizon=50", "iterations=12"],
    "pairs": ["algo=dpo", *PAIRS, "iterations=12"],
}
GROUPS = [list(FAMILIES)[i::5] for i in range(5)]  # those of a group share a process, and what it imports


def on_every_write(act: Callable[[bool], None]) -> None:
    """Call `act` before (False) and after (True) whatever changes the disk, in this process from now on."""
    from rlkit.language import folders
    from rlkit.recording import checkpoint

    def wrapped(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        act(False)
        result = real(*args, **kwargs)
        act(True)
        return result

    for name in ("write", "fsync", "replace", "unlink", "mkdir", "rmdir", "truncate", "posix_fallocate"):
        setattr(os, name, partial(wrapped, getattr(os, name)))
    for owner, name in ((checkpoint, "save_file"), (folders, "save_file"), (shutil, "rmtree")):
        setattr(owner, name, partial(wrapped, getattr(owner, name)))


def start(main: Callable[[list[str]], int], words: list[str], log: Path, kill_at: int | None = None) -> int:
    """Fork a child that is one run; what it prints goes into `log`. At the write `kill_at` it ends itself.

    The number of writes, each counted before and after, goes into `log`.count.
    """
    if child := os.fork():
        return child
    code, writes = 1, 0

    def count(_: bool) -> None:
        nonlocal writes
        writes += 1
        if writes == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        on_every_write(count)
        code = main(words)
        log.with_suffix(".count").write_text(str(writes))
    finally:
        os._exit(code)


def outright(words: list[str], folder: Path) -> list[str]:
    """A whole run in a folder: its words."""
    given = {word.partition("=")[0] for word in words}
    usual = [word for word in RUN if word.partition("=")[0] not in given]
    return [*(word.replace("OUT", str(folder)) for word in words), *usual, f"out={folder}"]


def ended(child: int, seconds: float) -> bool:
    """Whether a child has ended by itself within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        time.sleep(0.002)
    return False


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def warm(words: list[str]) -> None:
    """Import what a run imports, so that no child has to."""
    import tensorboard.backend.event_processing.event_accumulator
    import tensorboard.summary.writer.record_writer  # noqa: F401

    from rlkit import session
    from rlkit.settings import config

    session.assemble(config.read(words))


class Family:
    """One kind of run: what it comes to when it is left alone, and stops at random moments that must change nothing."""

    def __init__(self, words: list[str], folder: Path, seed: str) -> None:
        from rlkit import run

        self.words, self.folder, self.main = words, folder, run.main
        self.draw, self.log, self.where = random.Random(seed), folder / "log.txt", Counter[str]()
        warm(outright(words, folder))
        began = time.monotonic()
        assert code_of(start(self.main, outright(words, folder / "whole"), self.log)) == 0, self.log.read_text()
        self.seconds = time.monotonic() - began
        self.writes = int(self.log.with_suffix(".count").read_text())
        self.fresh()

    def fresh(self) -> None:
        self.cut = self.folder / f"cut-{sum(self.where.values())}"

    def again(self, kill_at: int | None = None) -> int:
        """Start the run, or go on with it."""
        started = (self.cut / "config.yaml").is_file()
        words = [f"resume={self.cut}", "trust=true"] if started else outright(self.words, self.cut)
        return start(self.main, words, self.log, kill_at)

    def stop(self, how: str | signal.Signals) -> bool:
        """One attempt to stop the run; False where it had come to its end before, which is then compared."""
        if how == "write":
            code = code_of(self.again(self.draw.randint(1, self.writes)))
            stopped = code == -signal.SIGKILL
        else:
            child = self.again()
            stopped = not ended(child, self.draw.uniform(0, 0.5 * self.seconds))
            if stopped:
                os.kill(child, signal.SIGKILL if how == "time" else how)
            code = code_of(child)
        if stopped:
            self.where[how if isinstance(how, str) else how.name] += 1
        else:
            assert code == 0, self.log.read_text()
            self.compare()
            shutil.rmtree(self.cut)
        return stopped

    def compare(self) -> None:
        found = differences(self.folder / "whole", self.cut)
        assert not found, found

    def finish(self) -> None:
        assert code_of(self.again()) == 0, self.log.read_text()
        self.compare()

    def torture(self, stops: list[str | signal.Signals], each: int) -> None:
        """Stop the run in all these ways, in any order; after `each` of them it may finish, and a new one is begun."""
        self.draw.shuffle(stops)
        for number, how in enumerate(stops, 1):
            while not self.stop(how):
                pass
            if number % each == 0 or number == len(stops):
                self.finish()
                self.fresh()


def alone(*words: str) -> subprocess.CompletedProcess[str]:
    """This file as a process of its own, with one thread, so that it may fork."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


forked = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


@forked
@pytest.mark.slow
def test_kills_at_writes_lose_nothing(tmp_path: Path) -> None:
    done = alone("quick", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@forked
@pytest.mark.parametrize("names", GROUPS, ids=", ".join)
def test_kills_and_signals_lose_nothing(names: list[str], tmp_path: Path) -> None:
    done = alone("families", str(tmp_path), *names)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


COMPARE = ["algo=q_learning,sarsa", "env=gridworld", "seed=0,1", "iterations=200", "checkpoint_every=20", "workers=2"]
COMPARE += ["evaluation_episodes=2", "validation_episodes=2"]


@pytest.mark.slow
@forked
def test_a_comparison_that_is_killed_comes_to_the_same_runs(tmp_path: Path) -> None:
    done = alone("compare", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def torture_compare(folder: Path) -> None:
    from rlkit import compare

    draw, log = random.Random("compare"), folder / "log.txt"
    began = time.monotonic()
    assert code_of(start(compare.main, [*COMPARE, f"out={folder / 'whole'}"], log)) == 0, log.read_text()
    seconds = time.monotonic() - began
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        child = start(compare.main, [*COMPARE, f"out={folder / 'cut'}"], log)
        if not ended(child, draw.uniform(0, 0.5 * seconds)):
            os.kill(child, how)
        code_of(child)
    assert code_of(start(compare.main, [*COMPARE, f"out={folder / 'cut'}"], log)) == 0, log.read_text()
    runs = [path.name for path in (folder / "whole" / "runs").iterdir() if path.is_dir()]
    assert len(runs) == 4
    for name in runs:
        found = differences(folder / "whole" / "runs" / name, folder / "cut" / "runs" / name)
        assert not found, (name, found)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    what, place, *names = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    if what == "compare":
        torture_compare(place)
    elif what == "quick":
        short = [word for word in FAMILIES["q_learning"] if not word.startswith("iterations")]
        Family([*short, "iterations=4"], place, what).torture(["write"] * QUICK, each=2)
    else:
        for name in names:
            print(f"{name}:", flush=True)
            (place / name).mkdir()
            family = Family(FAMILIES[name], place / name, name)
            family.torture(["time"] * TIMES + ["write"] * WRITES + list(SIGNALS), each=TIMES + WRITES + len(SIGNALS))
            print(dict(family.where), f"{family.writes // 2} writes", flush=True)
