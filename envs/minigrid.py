"""Grid worlds of MiniGrid (needs minigrid, MIT): rooms, keys and doors; an agent sees the 7 × 7 cells before it."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box

from rlkit.api import Count, Natural, Reference, UserError
from rlkit.control import Array, ControlEnv, Luck

from . import gym

KINDS = (11, 6, 3)  # of objects, colors and states in a cell


@dataclass(frozen=True)
class Config:
    rows: Count = 16  # copies played side by side
    id: str = "MiniGrid-Empty-8x8-v0"  # id of the world, such as MiniGrid-DoorKey-5x5-v0
    step_limit: Natural = 0  # steps after which an episode is truncated; 0: the world's own limit
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset


class Cells(gymnasium.ObservationWrapper[Any, Any, Any]):
    """The image alone, with a bit for each kind of object, color and state: [7, 7, 20]. The mission is left out."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = Box(0, 1, (7, 7, sum(KINDS)), np.bool_)

    def observation(self, observation: dict[str, Array]) -> Array:
        image = observation["image"]
        return np.concatenate([image[..., i, None] == np.arange(n) for i, n in enumerate(KINDS)], -1)


def world(name: str, limit: int = 0, **keywords: Any) -> gymnasium.Env[Any, Any]:
    """One copy; its reward counts steps as fractions of the limit, and it ends there by itself. 0: its own limit."""
    made: gymnasium.Env[Any, Any] = Cells(gymnasium.make(name, disable_env_checker=True, **keywords))
    if limit:
        made.set_wrapper_attr("max_steps", limit)
    return made


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """A grid world: the reward is 1 - 0.9·(steps taken / step limit) where the goal is reached, else 0."""
    try:
        import minigrid.minigrid_env  # noqa: F401  # registers its worlds
    except ImportError as error:
        raise UserError("env=minigrid needs the package minigrid: pip install -e '.[minigrid]'") from error
    if not config.id.startswith("MiniGrid-") or ":" in config.id:  # nor is a module imported that stands before a colon
        raise UserError(
            f"env.id={config.id} is not a world of MiniGrid: give one that begins with MiniGrid-, or env=gym"
        )
    gym.known(config.id)
    one = world(config.id)
    limit = config.step_limit or int(one.get_wrapper_attr("max_steps"))
    one.close()
    worlds = gym.Config(config.rows, config.id, step_limit=limit, luck=config.luck)
    reference = Reference(0.0, 1.0, "no goal", "a goal at once")
    return gym.make(worlds, seed, device, reference, factory=partial(world, config.id, config.step_limit))
