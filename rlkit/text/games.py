"""Text games: objects with reset and step, which return the next text and the reward of a turn.

reset(seed) -> text                     the first observation; (text, info) is accepted
step(text) -> (text, reward, done)      the next observation; (text, reward, terminated, truncated, info) is accepted
"""

import inspect
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rlkit.errors import RewardFailed, UserError
from rlkit.prompts import Prompt, cut
from rlkit.text.given import LETTERS, called, shown
from rlkit.text.scoring import ALLOWED, LARGEST

MOST = 2**16  # characters of an observation that are used: no context is longer


class Game(Protocol):
    """One episode at a time; all randomness comes from the seed."""

    def reset(self, seed: int) -> object:
        """Begin an episode and return the first observation."""
        ...

    def step(self, text: str) -> object:
        """Process the policy's turn and return (text, reward, done)."""
        ...


Make = Callable[[], object]  # creates a game


class Playing:
    """The episodes of one rollout: for each row its game, the rewards of its turns, and whether it is over."""

    def __init__(self, name: str, make: Make, seeds: Sequence[int]) -> None:
        self.name, self.games = name, [_made(name, make) for _ in seeds]
        if len(set(map(id, self.games))) < len(self.games):
            raise UserError(f"game {name} gives the same game each time: let it make a new one, so that none is shared")
        self.rewards: list[list[float]] = [[] for _ in seeds]
        self.seconds = 0.0  # time spent in games
        self.first = [self._reset(game, seed) for game, seed in zip(self.games, seeds, strict=True)]

    def replies(self, say: Callable[[str], Prompt], stop: Sequence[str]) -> Callable[..., list[str | None]]:
        """A function that replies to rows; say: turns a game's text into the text between two turns."""

        def reply(rows: Sequence[int], texts: Sequence[str]) -> list[str | None]:
            said = [self._step(row, cut(text, stop)) for row, text in zip(rows, texts, strict=True)]
            found: list[str | None] = [None if text is None else say(text) for text in said]
            if "" in found:
                raise RewardFailed(
                    f"game {self.name}: step gave no text, and nothing else stands between two turns; return a text, "
                    "or give an env.prompt that ends with a line break"
                )
            return found

        return reply

    def _reset(self, game: Game, seed: int) -> str:
        given = self._call(lambda: _reset_with(self.name, game.reset, seed))
        return self._text(given[0] if isinstance(given, tuple) and given else given, "reset")

    def _step(self, row: int, text: str) -> str | None:
        """The next text of the game; None where the episode is over."""
        given = self._call(lambda: self.games[row].step(text))
        if not isinstance(given, tuple | list) or len(given) not in (3, 5):
            raise RewardFailed(
                f"game {self.name}: step gave {shown(given)}; return (text, reward, done), or "
                "(text, reward, terminated, truncated, info)"
            )
        said, reward, *ends = given[:4]
        self._earn(row, reward)
        if any(self._truth(end) for end in ends):
            return None
        return self._text(said, "step")

    def _call(self, ask: Callable[[], object]) -> object:
        began = time.perf_counter()
        try:
            return called(f"game {self.name}", ask)
        finally:
            self.seconds += time.perf_counter() - began

    def _text(self, said: object, method: str) -> str:
        if not isinstance(said, str):
            raise RewardFailed(f"game {self.name}: {method} gave {shown(said)} in place of a text; return a str")
        plain = str.__getitem__(said, slice(MOST))  # a subclass of str may override this
        return plain.encode("utf-8", "replace").decode()

    def _truth(self, end: object) -> bool:
        try:
            if isinstance(end, float | str):  # a reward in the wrong place, or a "False"
                raise ValueError
            return bool(end)
        except (Exception, SystemExit):  # code of the user's may raise anything
            raise RewardFailed(
                f"game {self.name}: step gave {shown(end)} for whether the episode is over; give True or False"
            ) from None

    def _earn(self, row: int, reward: object) -> None:
        """Record the reward of a turn."""
        try:
            number = math.nan if isinstance(reward, LETTERS) else float(reward)  # type: ignore[arg-type]  # the user's
        except (Exception, SystemExit):  # code of the user's may raise anything
            number = math.nan
        if not abs(number) <= LARGEST:  # also for nan
            raise RewardFailed(f"game {self.name} gave a reward of {shown(reward)}; every reward must be {ALLOWED}")
        self.rewards[row].append(number)
        if math.fsum(map(abs, self.rewards[row])) > LARGEST:  # so that no partial sum exceeds it
            raise RewardFailed(
                f"game {self.name}: the rewards of an episode sum to more than {LARGEST:g}; give smaller ones"
            )


def _made(name: str, make: Make) -> Game:
    """A game for one episode. Raises: UserError where it lacks reset or step."""
    game = called(f"game {name}", make)
    methods = called(f"game {name}", lambda: {each: getattr(game, each, None) for each in ("reset", "step")})
    assert isinstance(methods, dict)
    if missing := [each for each, method in methods.items() if not callable(method)]:
        raise UserError(
            f"game {name} makes a {type(game).__name__} without {' and '.join(missing)}: "
            "give it reset(seed) -> text and step(text) -> (text, reward, done)"
        )
    return game  # type: ignore[return-value]  # any object with these two methods is a game


def _reset_with(name: str, reset: Callable[..., object], seed: int) -> object:
    """Call reset with the seed, by name if its signature says so: Gymnasium's takes it by name."""
    try:
        keys = inspect.signature(reset).parameters
    except ValueError:  # a compiled function has no signature
        return reset(seed)
    if not keys:
        raise UserError(f"game {name}: reset takes no seed: write def reset(self, seed), and draw all luck from it")
    return reset(seed=seed) if "seed" in keys else reset(seed)
