"""MinAtar (needs minatar, GPL-3.0): five games of Atari on 10 × 10 cells, each object on a plane of its own."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
import torch

from rlkit.api import Count, UserError
from rlkit.control import Array, ControlEnv, Luck

from . import gym

CELL = 20  # pixels of a cell in a picture


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    game: Literal["asterix", "breakout", "freeway", "seaquest", "space_invaders"] = "breakout"  # name of the game
    step_limit: Count = 5_000  # frames after which an episode is truncated
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset


class Fresh(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A reset forgets the last action, too: MinAtar would repeat it in the first step of the next episode.

    MinAtar draws from a generator of its own: `env.luck=own` seeds that one in the place of Gymnasium's.
    """

    seeded = -1  # as in Gymnasium: unknown

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        found = super().reset(seed=seed, options=options)
        self.get_wrapper_attr("game").last_action, self.seeded = 0, -1 if seed is None else seed
        return found

    def render(self) -> Array | None:
        """The cells in MinAtar's colors, as bytes and large enough to be seen [200, 200, 3]; it has fractions of 1."""
        cells: Any = super().render()
        return None if cells is None else np.rint(255 * cells).astype(np.uint8).repeat(CELL, 0).repeat(CELL, 1)

    @property
    def np_random_seed(self) -> int:
        return self.seeded

    @property
    def np_random(self) -> np.random.Generator:
        return self.env.np_random

    @np_random.setter
    def np_random(self, value: np.random.Generator) -> None:
        self.get_wrapper_attr("game").seed(int(value.integers(2**31)))


def game(name: str, **keywords: Any) -> gymnasium.Env[Any, Any]:
    """One copy."""
    made: gymnasium.Env[Any, Any] = Fresh(gymnasium.make(name, disable_env_checker=True, **keywords))
    return made


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """A game with its own minimal actions; an action is repeated with probability 0.1, as MinAtar has it."""
    name = f"MinAtar/{config.game.title().replace('_', '')}-v1"  # v1: the actions that do something
    try:
        from minatar.gym import register_envs
    except ImportError as error:
        raise UserError("env=minatar needs the package minatar: pip install -e '.[minatar]'") from error
    if name not in gymnasium.registry:
        register_envs()
    games = gym.Config(config.rows, name, step_limit=config.step_limit, luck=config.luck)
    return gym.make(games, seed, device, factory=partial(game, name))
