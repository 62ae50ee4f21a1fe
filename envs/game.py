"""A game in words of your own, for any object with reset(seed) and step(text): env.game=./mine.py:Game."""

import inspect
from collections.abc import Callable
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
    game: Annotated[str, Place("code")] = ""  # what makes a game: ./mine.py:Game | package.module:Game
    kwargs: dict[str, Any] = field(default_factory=dict)  # what it takes
    rows: Count = 32  # games per rollout
    max_tokens: Count = 256  # tokens that the policy writes in one episode
    turn_tokens: Count | None = None  # tokens of one turn; none: what is left of max_tokens
    chat: Literal["auto"] | bool = "auto"  # by the model's chat template; auto: where it has one
    system: Annotated[Words, TURNS] = ""  # what the system message says; empty: whatever the template itself writes
    prompt: Words | None = None  # around what the game says, which is {question}; none: plain text adds a line break
    stop: tuple[Words, ...] | None = None  # texts that end a turn; none: a line break in plain text
    chat_options: Annotated[dict[str, Any], TURNS] = field(default_factory=dict)  # what else the template is told
    validation: Natural = 64  # games to tune on: other seeds than those that are trained on
    test: Natural = 200  # games to claim on


def make(config: Config, seed: int, device: str | torch.device) -> GameEnv:
    if not config.game:
        raise UserError("env=game needs a game: give env.game=./mine.py:Game, with reset(seed) and step(text)")
    made, name = named("env.game", config.game), config.game.rpartition("/")[2]
    check(made, name, config.kwargs)
    return GameEnv(
        lambda: made(**config.kwargs),
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
