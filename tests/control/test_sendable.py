"""What an environment in a process of its own raises reaches the process that trains, whatever its class."""

import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = """
import gymnasium, multiprocessing, numpy as np
from gymnasium.spaces import Box, Discrete
from rlkit.envs import gym

class TwoWords(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} {b}")

class World(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        class Local(Exception):  # no other process finds it
            pass

        if multiprocessing.parent_process():
            raise RAISED
        return np.zeros(1, np.float32), 0.0, False, False, {}

env = gym.make(gym.Config(rows=2, processes=True), 0, "cpu", factory=World)
vector = env._stream.vector
vector.reset(seed=[0, 1])
vector.step(np.zeros(2, np.int64))
"""


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        ("Local('no fuel')", "RuntimeError: Local: no fuel"),
        ("TwoWords('no', 'fuel')", "RuntimeError: TwoWords: no fuel"),
        ("ValueError('no fuel')", "ValueError: no fuel"),
        ("ValueError(lambda: 0)", "RuntimeError: ValueError: <function World.step.<locals>.<lambda>"),
    ],
)
@pytest.mark.slow
def test_an_error_of_any_class_reaches_the_trainer(raised: str, line: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENVIRONMENT.replace("RAISED", raised))
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert any(x.startswith(line) for x in run.stderr.splitlines()), run.stderr
