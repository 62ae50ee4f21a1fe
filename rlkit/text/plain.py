"""What every task in words answers alike."""

from typing import TYPE_CHECKING, Literal

from rlkit.api import Plays
from rlkit.exact import Model

if TYPE_CHECKING:
    from rlkit.api import AnySpace


class InWords:
    """The part of `rlkit.api.Env` that is the same for all text: ids of tokens have no space, and there is no model."""

    kind: Literal["control", "text"] = "text"
    plays: bool = True
    stored_reference: bool = False
    observation_space: "AnySpace | None" = None
    action_space: "AnySpace | None" = None

    def exact(self, policy: Plays, gamma: float) -> dict[str, float]:
        return {}

    def model(self) -> Model | None:
        return None

    def close(self) -> None:
        """Nothing to close."""
