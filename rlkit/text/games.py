"""Games in words: what an object with reset and step says, and what its turns earn.

reset(seed) -> text                     the first observation; (text, info) will do
step(text) -> (text, reward, done)      what is said next; (text, reward, terminated, truncated, info) will do
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

MOST = 2**16  # characters of an observation that are read: no context holds more


class Game(Protocol):
    """One episode at a time; all its luck comes from the seed."""

    def reset(self, seed: int) -> object:
        """Begin an episode: the first observation."""
        ...

    def step(self, text: str) -> object:
        """Take what the policy wrote in its turn: (text, reward, done)."""
        ...


Make = Callable[[], object]  # makes a game


class Playing:
    """The episodes of one rollout: a game for each row, what its turns earned, and whether it is over."""

    def __init__(self, name: str, make: Make, seeds: Sequence[int]) -> None:
        self.name, self.games = name, [_made(name, make) for _ in seeds]
        self.rewards: list[list[float]] = [[] for _ in seeds]
        self.seconds = 0.0  # that the games took
        self.first = [self._reset(game, seed) for game, seed in zip(self.games, seeds, strict=True)]

    def replies(self, say: Callable[[str], Prompt], stop: Sequence[str]) -> Callable[..., list[str | None]]:
        """Answers to rows; say: what stands between two turns where the game says a text."""

        def reply(rows: Sequence[int], texts: Sequence[str]) -> list[str | None]:
            said = [self._step(row, cut(text, stop)) for row, text in zip(rows, texts, strict=True)]
            return [None if text is None else say(text) for text in said]

        return reply

    def _reset(self, game: Game, seed: int) -> str:
        given = self._call(lambda: _reset_with(game.reset, seed))
        return self._text(given[0] if isinstance(given, tuple) and given else given, "reset")

    def _step(self, row: int, text: str) -> str | None:
        """What the game says next; None: the episode is over."""
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
        plain = str.__getitem__(said, slice(MOST))  # a class of the user's may do something else
        return plain.encode("utf-8", "replace").decode()

    def _truth(self, end: object) -> bool:
        try:
            return bool(end)
        except (Exception, SystemExit):  # whatever a class of the user's raises
            raise RewardFailed(
                f"game {self.name}: step gave {shown(end)} for whether the episode is over; give True or False"
            ) from None

    def _earn(self, row: int, reward: object) -> None:
        """Note what a turn earned."""
        try:
            number = math.nan if isinstance(reward, LETTERS) else float(reward)  # type: ignore[arg-type]  # the user's
        except (Exception, SystemExit):  # whatever a class of the user's raises
            number = math.nan
        if not abs(number) <= LARGEST:  # nan, too
            raise RewardFailed(f"game {self.name} gave a reward of {shown(reward)}; every reward must be {ALLOWED}")
        self.rewards[row].append(number)
        if math.fsum(map(abs, self.rewards[row])) > LARGEST:  # so that any of them sum to less
            raise RewardFailed(
                f"game {self.name}: the rewards of an episode sum to more than {LARGEST:g}; give smaller ones"
            )


def _made(name: str, make: Make) -> Game:
    """A game for one episode. Raises: UserError where it has no reset or step."""
    game = called(f"game {name}", make)
    methods = called(f"game {name}", lambda: {each: getattr(game, each, None) for each in ("reset", "step")})
    assert isinstance(methods, dict)
    if missing := [each for each, method in methods.items() if not callable(method)]:
        raise UserError(
            f"game {name} makes a {type(game).__name__} without {' and '.join(missing)}: "
            "give it reset(seed) -> text and step(text) -> (text, reward, done)"
        )
    return game  # type: ignore[return-value]  # whatever has these two is one


def _reset_with(reset: Callable[..., object], seed: int) -> object:
    """Gymnasium's reset takes its seed by name."""
    try:
        keys = inspect.signature(reset).parameters
    except ValueError:  # it is compiled
        keys = {}  # type: ignore[assignment]
    return reset(seed=seed) if "seed" in keys else reset(seed)
