"""What every control problem answers that has no model: nothing is known of it, and nothing is written in words."""

from collections.abc import Mapping
from typing import Literal

from tensordict import TensorDict
from torch import Tensor

from rlkit.api import Plays
from rlkit.control import requirements
from rlkit.exact import Model
from rlkit.scores import Sample, Unit

EPISODES = {"train": 20, "validation": 20, "test": 100}  # how many `evaluate` plays where no number is given


class Played:
    """The part of `rlkit.api.Env` that most environments lack; a subclass that has it overrides this."""

    kind: Literal["control", "text"] = "control"
    metric: Literal["return", "accuracy"] = "return"
    plays: bool = True
    stored_reference: bool = False
    splits: Mapping[str, int] = EPISODES
    scoring: float = 0.0

    def ceiling(self, policy: Plays, episodes: int | None = None) -> None:
        return None

    def exact(self, policy: Plays | Tensor, gamma: float = 0.99) -> dict[str, float]:
        return {}

    def model(self) -> Model | None:
        return None

    def scored(self, policy: Plays) -> Unit:
        return "episodes"

    def samples(self, rollout: TensorDict, policy: Plays, limit: int) -> list[Sample]:
        return []

    def check(self, policy: Plays) -> None:
        requirements.check_act(requirements.acting(policy))
