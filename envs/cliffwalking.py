"""CliffWalking from Gymnasium's own table of transitions, stepped as a batch."""

from dataclasses import dataclass

import torch
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from rlkit.api import Count
from rlkit.control import Grid, Luck, Painter, TabularEnv, from_outcomes
from rlkit.fields import Copies

GOAL = 47  # the lower right corner of 4×12 cells
MARKS = {"start": ((3, 0),), "cliff": tuple((3, column) for column in range(1, 11)), "goal": ((3, 11),)}
GRID = Grid(4, 12, ((-1, 0), (0, 1), (1, 0), (0, -1)), actions=("up", "right", "down", "left"), marks=MARKS)


@dataclass(frozen=True)
class Config:
    rows: Copies = 8  # copies played side by side
    slippery: bool = False  # one move in three goes as intended, the others to either side
    step_limit: Count = 500  # steps after which an episode is truncated; Gymnasium itself has no limit
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset


def make(config: Config, seed: int, device: str | torch.device) -> TabularEnv:
    """CliffWalking: 13 steps along the edge, or a longer way; -1 a step, -100 and back to the start for a fall.

    Sutton & Barto 2018, example 6.6. Where two slips lead to the same cell, their mean reward is paid.
    """
    cliff = CliffWalkingEnv(is_slippery=config.slippery)
    model = from_outcomes(cliff.P, cliff.initial_state_distrib.tolist(), [GOAL])
    source = f"CliffWalking{' slippery' if config.slippery else ''}, Gymnasium's table"
    picture = Painter("CliffWalking-v1", "s")
    limit = config.step_limit
    return TabularEnv(model, config.rows, seed, device, limit, source, picture=picture, grid=GRID, luck=config.luck)
