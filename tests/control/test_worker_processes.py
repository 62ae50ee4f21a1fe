"""Environments that play in processes of their own."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from rlkit.envs import gym
from support.probes import Draws
from tensordict import TensorDict
from test_last_observation import Counts

from rlkit.control.sendable import Sendable
from rlkit.control.vector import Copies
from rlkit.control.workers import starting
from rlkit.errors import UserError

DIED = (
    "the process of copy 0 of the environment has ended with exit code -9; "
    "continue with: python -m rlkit.run resume=run trust=true"
)
PLUGIN = '''
"""A world in processes of their own; at `step` a copy says something to all of them."""

import os
from dataclasses import dataclass
from functools import partial

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from rlkit.control import ControlEnv


class World(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(2)

    def __init__(self, said, when):
        self.said, self.when, self.all = said, when, 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t, self.all = self.t + 1, self.all + 1
        if self.said and self.all == self.when:
            os.kill(os.getpid(), self.said) if self.said == 9 else os.killpg(os.getpgrp(), self.said)
        return np.full(1, self.t / 10, np.float32), 1.0, False, self.t == 10, {}


@dataclass(frozen=True)
class Config:
    said: int = 0  # a signal


def make(config, seed, device):
    def vector(n):
        worlds = [partial(World, config.said, 40 if i == 0 and n == 3 else -1) for i in range(n)]
        return AsyncVectorEnv(worlds, autoreset_mode=AutoresetMode.DISABLED)

    return ControlEnv(vector, 3, seed, device, source="worlds")
'''


@pytest.mark.slow
def test_one_that_loses_the_last_observation_is_refused() -> None:
    vector = AsyncVectorEnv([Counts], autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(UserError, match=r"make it with autoreset_mode=AutoresetMode.DISABLED"):
        Copies(vector)
    vector.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_more_processes_than_the_system_allows_are_one_line() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 30, before[1]))
    try:
        with pytest.raises(UserError, match=r"^env\.rows=64 with env\.processes=true starts 64 processes, and the sys"):
            gym.make(gym.Config(64, "CartPole-v1", processes=True), 0, "cpu")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_key_steps_copies_in_processes_with_the_same_result(tmp_path: Path) -> None:
    def played(processes: bool) -> TensorDict:
        env = gym.make(gym.Config(2, "CartPole-v1", processes=processes), 0, "cpu")
        assert isinstance(env._stream.vector, AsyncVectorEnv) is processes and env.longest == 500
        found = env.rollout(Draws(env), steps=40)
        env.close()
        return found

    assert (played(True) == played(False)).all()


def test_groups_play_in_processes_and_evaluations_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    apart: list[int] = []

    def counted(copy: Any, spec: Any, rows: int, seed: int, n: int) -> SyncVectorEnv:  # processes take long to start
        apart.append(n)
        return SyncVectorEnv([copy] * n, autoreset_mode=AutoresetMode.DISABLED)

    monkeypatch.setattr(gym, "in_processes", counted)
    env = gym.make(gym.Config(2, "CartPole-v1", processes=True), 0, "cpu")
    env.rollout(Draws(env), repeats=2)
    env.evaluate(Draws(env), episodes=2)
    assert apart == [2, 4] and {purpose for purpose, _ in env._copies} == {"stream", "fresh", "evaluate"}
    env.close()


class Stuck(Counts):
    """In compiled code that never returns, where Python handles no signal."""

    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        sum(range(10**13))
        raise AssertionError


class Interrupted(AsyncVectorEnv):
    def step(self, actions: Any) -> Any:
        self.step_async(actions)
        raise KeyboardInterrupt


@pytest.mark.slow
def test_one_that_never_answers_ends_with_the_second_ctrl_c() -> None:
    """Python waits for its processes when it ends, and one in compiled code would not leave by a gentle signal."""
    vector = Interrupted([Stuck, Counts], autoreset_mode=AutoresetMode.DISABLED)
    copies = Copies(vector)
    copies.reset([0, 1])
    with pytest.raises(KeyboardInterrupt):
        copies.step(np.zeros(2, dtype=np.int64))
    try:
        for process in vector.processes:
            process.join(20)
        assert all(process.exitcode for process in vector.processes) and vector.closed
    finally:
        for process in vector.processes:
            process.kill()


class HangsUp(Counts):
    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise ConnectionError("the simulator hung up")


@pytest.mark.filterwarnings("ignore:.*ERROR")
@pytest.mark.slow
def test_an_error_of_an_environments_own_connection_is_not_the_end_of_its_process() -> None:
    vector = AsyncVectorEnv([lambda: Sendable(HangsUp())], autoreset_mode=AutoresetMode.DISABLED)
    copies = Copies(vector)
    copies.reset([0])
    with pytest.raises(RuntimeError, match=r"^ConnectionError: the simulator hung up$"):
        copies.step(np.zeros(1, dtype=np.int64))
    vector.close(terminate=True)


HUNG = """
import time
from pathlib import Path
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class World(gymnasium.Env):
    observation_space, action_space, steps = Box(0, 1, (1,), np.float32), Discrete(2), 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 3:
            Path("hung").touch()
            time.sleep(1000)
        return np.zeros(1, np.float32), 1.0, False, False, {}
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
@pytest.mark.slow
def test_a_copy_that_never_answers_ends_after_kill_9_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "hung_world.py").write_text(HUNG)
    words = ["algo=a2c", "env=gym", "env.entry=hung_world:World", "env.processes=true", "env.rows=2", "out=run"]
    words += ["env.step_limit=2", "evaluations=0", "evaluation_episodes=1", "algo.horizon=2", "iterations=8"]
    command = [sys.executable, "-m", "rlkit.run", *words]
    run = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE)
    try:
        while not (tmp_path / "hung").exists() and run.poll() is None:
            time.sleep(0.05)
        assert run.poll() is None
        run.kill()
        run.communicate(timeout=60)  # the copies have its output open as long as they live
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)


@pytest.mark.skipif(os.name != "posix", reason="groups of processes")
@pytest.mark.parametrize(
    "said, code, told",
    [
        (0, 0, "everything is in the run folder"),
        pytest.param(signal.SIGINT, 0, "interrupted; continue with", marks=pytest.mark.slow),
        pytest.param(9, 1, DIED, marks=pytest.mark.slow),  # of the copy itself
        pytest.param(signal.SIGTERM, 1, "stopped at iteration 4; continue with", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_run_ends_and_a_signal_to_all_of_its_processes_stops_it_once(
    said: int, code: int, told: str, tmp_path: Path
) -> None:
    """Workers that were forked while signals are handled must neither die of them nor outlive the run."""
    (tmp_path / "worlds.py").write_text(PLUGIN)
    words = ["algo=a2c", "env=./worlds.py", f"env.said={int(said)}", "algo.horizon=10", "iterations=8", "out=run"]
    command = [sys.executable, "-m", "rlkit.run", *words, "evaluation_episodes=2", "evaluations=0"]
    done = subprocess.run(command, cwd=tmp_path, start_new_session=True, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr.count("finishing this iteration")) == (code, int(said == signal.SIGINT)), done
    assert told in (done.stderr if said == 9 else done.stdout)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "error", [EOFError(), ConnectionResetError(104, "Connection reset by peer"), BrokenPipeError()]
)
def test_a_process_that_ends_as_it_begins_is_not_taken_for_one_too_many(error: Exception) -> None:
    said = r"^it starts 2 processes, and one ended as it began .* below if __name__ =="
    with pytest.raises(UserError, match=said), starting("it starts 2 processes"):
        raise error
