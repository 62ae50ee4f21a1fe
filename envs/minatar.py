"""MinAtar (needs minatar, GPL-3.0): five games of Atari on 10 × 10 cells, each object on a plane of its own."""

from dataclasses import dataclass
from typing import Literal

import gymnasium
import torch

from rlkit.api import Count, UserError
from rlkit.control import ControlEnv, Luck

from . import gym

PACKAGE = "env=minatar needs the package minatar: pip install -e '.[minatar]'"


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    game: Literal["asterix", "breakout", "freeway", "seaquest", "space_invaders"] = "breakout"  # which game
    step_limit: Count = 5_000  # frames after which an episode is truncated
    luck: Luck = "shared"  # of the attempts from one start: shared, or each attempt's own after the reset


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """A game with its own minimal actions; an action is repeated with probability 0.1, as MinAtar has it."""
    name = f"MinAtar/{config.game.title().replace('_', '')}-v1"  # v1: the actions that do something
    try:
        from minatar.gym import register_envs
    except ImportError as error:
        raise UserError(PACKAGE) from error
    if name not in gymnasium.registry:
        register_envs()
    return gym.make(gym.Config(config.rows, name, step_limit=config.step_limit, luck=config.luck), seed, device)
