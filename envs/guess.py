"""Guess a number from 1 to N in K turns; after each one the game says whether it is higher or lower.

The wording is that of the embedded problems, which the tiny model can read: how many books does Ada have?
"""

import random
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from annotated_types import Ge, Le

from rlkit.api import Count, Natural, Reference
from rlkit.fields import Words
from rlkit.terminal import warn
from rlkit.text import Asking, GameEnv


@dataclass(frozen=True)
class Config:
    numbers: Annotated[int, Ge(2), Le(10**6)] = 7  # N: the number is one of 1 to N, each as likely
    guesses: Annotated[int, Ge(1), Le(100)] = 3  # K: guesses of a game
    rows: Count = 32  # games per rollout
    max_tokens: Count = 24  # tokens that the policy writes in one game
    turn_tokens: Count | None = None  # tokens of one guess; none: the digits of N, at least 2, as tiny writes digits
    prompt: Words = "{question}\n####"  # text around what the game says, {question}; tiny answers #### by a number
    validation: Natural = 64  # games of the validation split, with seeds of their own
    test: Natural = 200  # games of the test split


class Guess:
    """The first number of a turn is the guess; a turn without one is lost."""

    def __init__(self, numbers: int = 7, guesses: int = 3) -> None:
        self.numbers, self.guesses = numbers, guesses

    def reset(self, seed: int) -> str:
        self.number, self.left = random.Random(seed).randint(1, self.numbers), self.guesses
        return f"Ada has 1 to {self.numbers} books. How many books does Ada have?"

    def step(self, text: str) -> tuple[str, float, bool]:
        found = re.search(r"[0-9]{1,9}", text)
        guess = int(found[0]) if found else None
        self.left -= 1
        if guess == self.number:
            return "right", 1.0, True
        said = "Say a number." if guess is None else "Ada has more." if guess < self.number else "Ada has fewer."
        return said, 0.0, self.left == 0


def optimum(numbers: int, guesses: int) -> float:
    """min(N, 2^K − 1) / N: how often binary search wins. K guesses distinguish at most 2^K − 1 numbers."""
    return min(numbers, (1 << guesses) - 1) / numbers


def tokens_of_a_turn(config: Config) -> int:
    """Enough for each number; a line on stderr where so many guesses do not fit an episode."""
    each = config.turn_tokens or max(2, len(str(config.numbers)))
    if (needed := config.guesses * each) > config.max_tokens:
        warn(
            f"env.guesses={config.guesses} of {each} tokens each may not fit env.max_tokens={config.max_tokens}, and a "
            f"game that is cut is lost: give env.max_tokens={needed}"
        )
    return each


def make(config: Config, seed: int, device: str | torch.device) -> GameEnv:
    best = optimum(config.numbers, config.guesses)
    return GameEnv(
        partial(Guess, config.numbers, config.guesses),
        "guess",
        config.rows,
        seed,
        device,
        config.max_tokens,
        tokens_of_a_turn(config),
        Asking(config.prompt, chat=None),
        splits={"validation": config.validation, "test": config.test},
        metric="accuracy",
        source=f"guess a number from 1 to {config.numbers} in {config.guesses} turns; binary search wins {best:.3f}",
        reference=Reference(0.0, best, "no game won", "binary search"),
    )
