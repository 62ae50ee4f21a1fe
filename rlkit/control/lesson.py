"""What is learned from, where that is not what is measured: signs of rewards, and lives in place of whole games."""

from dataclasses import dataclass

from torch import Tensor

from rlkit.control.vector import LIFE


@dataclass(frozen=True)
class Lesson:
    """Of a game's rollouts; evaluations, and the returns of the episodes in a rollout, are the game's own."""

    signs: bool = False  # rewards are -1, 0 and 1
    lives: bool = False  # an episode ends with a life; its copy plays on. Copies have to tell, see `LIFE`

    def teach(self, data: dict[str, Tensor]) -> None:
        """Change what was played [..., T] into what is learned."""
        if self.signs:
            data["reward"] = data["reward"].sign()
        if self.lives:
            lost = data.pop(LIFE) & data["mask"]
            data["terminated"], data["done"] = data["terminated"] | lost, data["done"] | lost


MEASURED = Lesson()  # what is learned is what is measured
