"""Atari 2600 games of the Arcade Learning Environment (needs ale-py, GPL-2.0), with the usual preprocessing.

An observation is the last 4 of 84 × 84 gray frames, each the maximum of two; an action lasts 4 frames; an episode
begins with up to 29 frames of nothing (as Mnih et al. 2015, doi:10.1038/nature14236). The emulator's own vector
environment does that. FIRE is pressed at the start and after each lost life, where a game has it: else it may wait
forever.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from rlkit import memory
from rlkit.api import Count, Fraction, Natural, UserError
from rlkit.control import Array, ControlEnv, Lesson
from rlkit.control.vector import LIFE, Vector

SKIP = 4  # frames that an action lasts
TOGETHER = {"combat", "joust", "maze_craze", "warlords"}  # games that take two players
SIZE = 2**20  # bytes that a copy of the emulator takes at least; measured were 1.5 MB
PIXEL = 4  # a pixel of an observation is so large in a picture


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    game: str = "breakout"  # name of the game: pong, space_invaders, ms_pacman ...
    life_ends: bool = True  # end an episode at each lost life, in training only
    clip_reward: bool = True  # learn from the sign of each reward; evaluation reports the game's score
    sticky: Fraction = 0.0  # probability that the emulator repeats the last action; 0.25 in Machado et al. 2018
    step_limit: Count = 27_000  # steps after which an episode is truncated: half an hour of play
    threads: Natural = 0  # threads of the emulator, at most rows; 0: one for each core


class Games(Vector):
    """`n` copies of a game: the emulator's vector environment, whose copies are reset one by one from here."""

    def __init__(self, config: Config, n: int) -> None:
        from ale_py import Action
        from ale_py.vector_env import AtariVectorEnv

        many = "" if n == config.rows else f", as {n:,} copies side by side,"
        memory.check(SIZE * n, f"env.rows={config.rows}{many}", "give fewer")
        self.games = AtariVectorEnv(
            config.game,
            n,
            num_threads=min(config.threads, n),
            # It ends a step at its limit before it has the last frame: `step` counts instead.
            max_num_frames_per_episode=SKIP * (config.step_limit + 1),
            repeat_action_probability=config.sticky,
            frameskip=SKIP,
            reward_clipping=False,
        )
        self.metadata = {**self.games.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.num_envs, self.step_limit, self.spec = n, config.step_limit, None
        self.single_observation_space = self.games.single_observation_space
        self.single_action_space = self.games.single_action_space
        self.observation_space, self.action_space = self.games.observation_space, self.games.action_space
        actions = [*self.games.ale.get_action_set()]
        self.fire = actions.index(Action.FIRE) if Action.FIRE in actions else None
        self.lives, self.lost = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=bool)
        self.steps = np.zeros(n, dtype=np.int64)
        self.seen: Array = np.empty(0)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start the rows of `options["reset_mask"]` (all without one), each from its own seed."""
        rows = np.ones(self.num_envs, dtype=bool) if options is None else np.asarray(options["reset_mask"])
        self.seen, info = self.games.reset(
            seed=np.asarray(seed)[rows], options={"reset_mask": rows} if options else None
        )
        self.lives, self.lost, self.steps = info["lives"], self.lost & ~rows, np.where(rows, 0, self.steps)
        return self.seen, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step of every copy; one that lost a life in the step before presses FIRE, whatever its action is."""
        if self.fire is not None and self.lost.any():
            actions = np.where(self.lost, self.fire, actions)
        self.seen, reward, terminated, _, info = self.games.step(actions)
        self.steps += 1
        self.lost, self.lives = info["lives"] < self.lives, info["lives"]
        return self.seen, reward, terminated, self.steps >= self.step_limit, {LIFE: self.lost}

    def render(self) -> tuple[Array, ...]:
        """The newest frame of each copy, as it is seen [336, 336, 3]."""
        large = self.seen[:, -1].repeat(PIXEL, 1).repeat(PIXEL, 2)
        return tuple(np.stack([frame] * 3, -1) for frame in large)


def check_game(name: str) -> None:
    """Raises: UserError for an unknown game; it suggests similar names."""
    from ale_py import roms

    games = sorted({*roms.get_all_rom_ids()} - TOGETHER)
    if name in games:
        return
    if name in TOGETHER:
        raise UserError(f"env.game={name} takes two players: give another one, such as pong")
    near = difflib.get_close_matches(name.lower(), games, n=3, cutoff=0.4)
    raise UserError(f"env.game={name} is not a game of ale-py: give {' or '.join(near or ['breakout', 'pong'])}")


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """A game with its own minimal actions; the score is the game's."""
    try:
        import ale_py.vector_env  # noqa: F401
    except ImportError as error:
        raise UserError("env=atari needs the package ale-py: pip install -e '.[atari]'") from error
    check_game(config.game)
    lesson = Lesson(signs=config.clip_reward, lives=config.life_ends)
    source = f"Atari {config.game} (ale-py)"
    return ControlEnv(partial(Games, config), config.rows, seed, device, source, lesson=lesson)
