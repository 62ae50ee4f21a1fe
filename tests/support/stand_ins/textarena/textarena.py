"""What docs/formats.md uses of TextArena 0.7, as its documentation has it: a game for one player."""

import random


class Env:
    def reset(self, num_players: int, seed: int) -> None:
        assert num_players == 1
        self.number, self.left = random.Random(seed).randint(1, 20), 10

    def get_observation(self) -> tuple[int, str]:
        return 0, f"Guess the number. {self.left} guesses are left."

    def step(self, action: str) -> tuple[bool, dict[str, object]]:
        self.left -= 1
        self.won = f"[{self.number}]" in action
        return self.won or self.left == 0, {}

    def close(self) -> tuple[dict[int, float], dict[int, object]]:
        return {0: float(self.won)}, {}


def make(env_id: str) -> Env:
    assert env_id == "GuessTheNumber-v0"
    return Env()
