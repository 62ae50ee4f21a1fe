"""Runs that are sick on purpose, and what the doctor says of them."""

import json
from pathlib import Path
from typing import Any

from rlkit import run
from rlkit.doctor import Doctor
from support.words import last

SHORT = ["threads=1", "evaluation_episodes=2", "validation_episodes=2", "env.test=4", "env.validation=4"]
WORLD = """
import gymnasium
import numpy as np
from dataclasses import dataclass
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlkit.control import ControlEnv


@dataclass(frozen=True)
class Config:
    rows: int = 4  # copies


class World(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,), np.float32), {actions}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.t += 1
        observation = np.array([self.t / 10, {second}], np.float32)
        return observation, {reward}, self.t == 10, False, {{}}


def make(config, seed, device):
    def vector(n):
        return SyncVectorEnv([World] * n, autoreset_mode=AutoresetMode.DISABLED)

    return ControlEnv(vector, config.rows, seed, device, "a world of two numbers")
"""


def alarms(folder: Path, *keys: str) -> dict[str, str]:
    """Run a command; the message of each alarm by its name, told once in the summary and once in the metrics."""
    short = SHORT if "env=gsm8k" in keys else SHORT[:3]
    assert run.main(last(*keys, *short, f"out={folder}")) == 0
    return told(folder)


def told(folder: Path) -> dict[str, str]:
    """What a finished run has named."""
    found = json.loads((folder / "summary.json").read_text())["alarms"]
    logged = [(key, line["iteration"]) for line in lines(folder) for key in line if key.startswith("doctor/")]
    assert sorted(logged) == sorted((f"doctor/{alarm['name']}", alarm["iteration"]) for alarm in found)
    messages = {alarm["name"]: alarm["message"] for alarm in found}
    assert len(messages) == len(found) and all(len(message) <= 200 for message in messages.values())
    return messages


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def world(folder: Path, second: str = "0.0", reward: str = "float(action)", actions: str = "Discrete(2)") -> str:
    """An environment plug-in of ten steps; `second` is the second number of its observation."""
    path = folder / "world.py"
    path.write_text(WORLD.format(second=second, reward=reward, actions=actions))
    return f"env={path}"


def name(doctor: Doctor, looks: list[dict[str, float]]) -> list[str]:
    """The alarms that these numbers raise."""
    said: list[str] = []
    for iteration, x in enumerate(looks):
        doctor.name(x, {}, iteration, lambda name, _: said.append(name))
    return said
