"""A game in words of your own, for any object with reset(seed) and step(text): env.game=./mine.py:Game."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch

from rlkit.api import Count, Place, UserError
from rlkit.errors import one_line
from rlkit.fields import Natural, Words
from rlkit.named import named
from rlkit.text import Asking, GameEnv

from ._text import TURNS


@dataclass(frozen=True)
class Config:
    game: Annotated[str, Place("code")] = ""  # the game: ./mine.py:Game | package.module:Game
    kwargs: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the game's constructor
    rows: Count = 32  # games per rollout
    max_tokens: Count = 256  # tokens that the policy writes in one episode
    turn_tokens: Count | None = None  # tokens that the policy writes in one turn; none: the rest of max_tokens
    chat: Literal["auto"] | bool = "auto"  # ask in turns, by the model's chat template; auto: where it has one
    system: Annotated[Words, TURNS] = ""  # system message; empty: the template's own
    prompt: Words | None = None  # text around what the game says, {question}; none: plain text adds a line break
    stop: tuple[Words, ...] | None = None  # texts that end a turn; none: a line break in plain text
    chat_options: Annotated[dict[str, Any], TURNS] = field(default_factory=dict)  # further variables of the template
    validation: Natural = 64  # games of the validation split, with seeds of their own
    test: Natural = 200  # games of the test split


def make(config: Config, seed: int, device: str | torch.device) -> GameEnv:
    if not config.game:
        raise UserError("env=game needs a game: give env.game=./mine.py:Game, with reset(seed) and step(text)")
    made, name = named("env.game", config.game), config.game.rpartition("/")[2]
    check(made, name, config.kwargs)
    return GameEnv(
        lambda: made(**deepcopy(config.kwargs)),  # a game may change what it is given
        name,
        config.rows,
        seed,
        device,
        config.max_tokens,
        config.turn_tokens,
        Asking(
            config.prompt,
            None if config.chat == "auto" else config.chat,
            config.system,
            stop=config.stop or (),
            options=config.chat_options,
        ),
        config.stop,
        {"validation": config.validation, "test": config.test},
    )


def check(made: Callable[..., object], name: str, kwargs: dict[str, Any]) -> None:
    """Refuse arguments that a game does not take."""
    try:
        inspect.signature(made).bind(**kwargs)
    except TypeError as error:
        raise UserError(
            f"game {name} cannot be made with env.kwargs={one_line(kwargs)} ({one_line(error)}); give what it takes"
        ) from None
    except ValueError:  # it is compiled, and says so when it is called
        return
