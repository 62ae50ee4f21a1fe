"""FrozenLake from Gymnasium's own table of transitions, stepped as a batch."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from numpy.typing import NDArray

from rlkit.api import Natural
from rlkit.control import Grid, Luck, Painter, TabularEnv, from_outcomes
from rlkit.fields import Copies

STEP_LIMITS = {"4x4": 100, "8x8": 200}  # those of FrozenLake-v1 and FrozenLake8x8-v1
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
ACTIONS = ("left", "down", "right", "up")
LETTERS = {"start": b"S", "hole": b"H", "goal": b"G"}  # of Gymnasium's maps


@dataclass(frozen=True)
class Config:
    rows: Copies = 8  # copies played side by side
    map: Literal["4x4", "8x8"] = "4x4"  # Gymnasium's maps
    slippery: bool = True  # one move in three goes as intended, the others to either side
    step_limit: Natural = 0  # steps after which an episode is truncated; 0: Gymnasium's own, 100 and 200
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset


def make(config: Config, seed: int, device: str | torch.device) -> TabularEnv:
    """FrozenLake: cross the ice to the goal (+1) without falling into a hole (0)."""
    lake = FrozenLakeEnv(map_name=config.map, is_slippery=config.slippery)
    goal = np.flatnonzero(np.asarray(lake.desc) == b"G").tolist()
    model = from_outcomes(lake.P, lake.initial_state_distrib.tolist(), goal)
    limit = config.step_limit or STEP_LIMITS[config.map]
    source = f"FrozenLake {config.map}{' slippery' if config.slippery else ''}, Gymnasium's table"
    picture = Painter("FrozenLake-v1", "s", map_name=config.map)
    return TabularEnv(
        model, config.rows, seed, device, limit, source, "success", picture, on_map(np.asarray(lake.desc)), config.luck
    )


def on_map(letters: NDArray[np.bytes_]) -> Grid:
    """How the states lie, and where the holes are."""
    rows, columns = letters.shape
    marks = {name: tuple((r, c) for r, c in np.argwhere(letters == x).tolist()) for name, x in LETTERS.items()}
    return Grid(rows, columns, MOVES, actions=ACTIONS, marks=marks)
