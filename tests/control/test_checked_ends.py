"""Ends of steps that are neither True nor False are one line, whatever made the environment."""

from typing import Any

import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support.probes import Draws
from test_contract import LaterNumber, LaterText

from rlkit.api import UserError
from rlkit.control import ControlEnv


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(
    ("env", "told"), [(LaterText, "terminated of type str"), (LaterNumber, "truncated of type int")]
)
def test_those_of_copies_in_a_vector_environment_of_ones_own_are_one_line(
    env: Any, told: str, mode: AutoresetMode
) -> None:
    made = ControlEnv(lambda n: SyncVectorEnv([env] * n, autoreset_mode=mode), 2, source="mine")
    with pytest.raises(UserError, match=rf"^mine: step gave {told}: return True or False$"):
        made.rollout(Draws(made), steps=4)
