"""A small game, its world, and an answer to it."""

from typing import Any

from rlkit.text import GameEnv


class Count:
    """Say the next number; each right one earns 1, and the third ends the game."""

    def reset(self, seed: int) -> str:
        self.at = seed % 5
        return f"{self.at}"

    def step(self, text: str) -> tuple[Any, ...]:
        right = text == str(self.at + 1)
        self.at += 1
        return f"{self.at}", float(right), self.at % 5 == 3


def env(make: Any = Count, **settings: Any) -> GameEnv:
    return GameEnv(make, "count", 4, 0, **{"max_tokens": 60, **settings})


def right(prompt: str, attempt: int, heard: list[str]) -> str:
    last = (heard or [prompt])[-1].strip()
    return str(int(last) + 1) if attempt == 0 else "?"
