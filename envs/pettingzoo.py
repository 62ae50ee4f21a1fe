"""Games of several agents that act at once, through PettingZoo (MIT): each agent is a row, and all share one policy."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import torch

from rlkit.api import Count, Natural, Place, UserError
from rlkit.control import ControlEnv
from rlkit.control.agents import Game, Together
from rlkit.control.contract import check_game
from rlkit.control.video import prepare
from rlkit.control.wrapping import DRAWN, Keywords, check_drawing
from rlkit.errors import one_line

from . import gym

PACKAGES = {"pettingzoo": ("butterfly", "sisl", "classic"), "mpe2": ("",)}  # and those of their parts that hold games


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side; each agent of a copy is a row
    id: str = ""  # a module of pettingzoo or mpe2: mpe2.simple_spread_v3, pettingzoo.butterfly.cooperative_pong_v6 ...
    kwargs: Keywords = field(default_factory=dict)  # keyword arguments of parallel_env, such as max_cycles
    entry: Annotated[str, Place("code")] = ""  # in place of id: MODULE:NAME of what makes a parallel game
    step_limit: Natural = 0  # steps after which an episode is truncated, if the game's own limit is not lower
    agent_number: bool = False  # add the number of the agent to its observation
    anew: bool = False  # make a new game for each episode; needed where a reset does not forget

    def __post_init__(self) -> None:
        if bool(self.id) == bool(self.entry):
            raise UserError(
                "env=pettingzoo needs one game: give env.id=MODULE, as in env.id=mpe2.simple_spread_v3, or "
                "env.entry=MODULE:NAME"
            )
        check_drawing(self.kwargs)

    @property
    def called(self) -> str:
        """The key that says which game this is."""
        return f"env.entry={self.entry}" if self.entry else f"env.id={self.id}"


def games() -> list[str]:
    """The modules that may be an id here."""
    found = []
    for package, parts in PACKAGES.items():
        for part in parts:
            name = ".".join(filter(None, (package, part)))
            folder = importlib.import_module(name).__path__
            found += [f"{name}.{each.name}" for each in pkgutil.iter_modules(folder) if "_v" in each.name]
    return found


def maker(config: Config) -> Callable[..., Game]:
    """What makes one game.

    Raises: UserError where there is none, or where it plays in turns only.
    """
    if config.entry:
        return gym.named(config.entry)
    if config.id not in (known := games()):
        near = difflib.get_close_matches(config.id, known, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"give one of {', '.join(known)}"
        raise UserError(f"env.id={config.id} is not a game of pettingzoo or mpe2: {hint}")
    try:
        module = importlib.import_module(config.id)
    except ImportError as error:
        raise UserError(f"env.id={config.id} needs a package that is not there: {one_line(error)}") from error
    if not hasattr(module, "parallel_env"):
        raise UserError(f"env.id={config.id} is played in turns, and here agents act at once: give another game")
    make: Callable[..., Game] = module.parallel_env
    return make


def made(config: Config, make: Callable[..., Game], **more: Any) -> Game:
    """One game. Raises: UserError with the reason where it cannot be made."""
    try:
        return make(**deepcopy(config.kwargs) | more)
    except (ImportError, TypeError, ValueError, AssertionError) as error:
        told = f"{config.called} with env.kwargs={one_line(config.kwargs)} cannot be made: {one_line(error)}"
        raise UserError(told) from error


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """A game; what each agent earns is its own, and the score of an episode the mean over its agents."""
    prepare()  # pygame, which most games import
    try:
        import mpe2  # noqa: F401
        from pettingzoo import ParallelEnv
    except ImportError as error:
        raise UserError(
            "env=pettingzoo needs the packages pettingzoo and mpe2: pip install -e '.[pettingzoo]'"
        ) from error
    create = maker(config)

    def vector(n: int, **more: Any) -> Together:
        game = partial(made, config, create, **more)
        return Together(game, n, config.called, config.agent_number, config.anew, config.step_limit)

    one = made(config, create)
    if not isinstance(one, ParallelEnv):
        raise UserError(f"{config.called} makes a {type(one).__name__}: it has to be a pettingzoo.ParallelEnv")
    check_game(one, config.called)
    agents = len(one.possible_agents)
    one.close()
    source = f"{config.called.partition('=')[2]}, {agents} agents (PettingZoo)"
    drawn, limiting = partial(vector, agents, render_mode=DRAWN), "give env.step_limit=N"
    rows = config.rows * agents
    return ControlEnv(vector, rows, seed, device, source, drawn=drawn, limiting=limiting, agents=agents)
