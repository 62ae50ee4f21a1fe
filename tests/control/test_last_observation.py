"""The last observation of an episode, from environments that write every observation into one array."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support.probes import Chooses

from rlkit.control import ControlEnv
from rlkit.control.vector import Copies
from rlkit.control.video import frames


class Counts(gymnasium.Env[Any, Any]):
    """What episode this is, and the step; the third step ends it."""

    observation_space, action_space = Box(-9, 9, (2,), np.float32), Discrete(2)

    def __init__(self) -> None:
        self.seen = np.array([-1, 0], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seen += (1, -self.seen[1])
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.seen[1] += 1
        return self.seen, 1.0, False, bool(self.seen[1] == 3), {}


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("copy", [True, False])
def test_it_is_not_what_the_reset_wrote(mode: AutoresetMode, copy: bool) -> None:
    copies = Copies(SyncVectorEnv([Counts] * 2, copy=copy, autoreset_mode=mode), lambda row: 0)
    copies.reset([0, 0])
    seen = [copies.step(np.array([0, 0]))[0][0].tolist() for _ in range(3)]
    assert seen == [[0, 1], [0, 2], [0, 3]]


@pytest.mark.parametrize("mode", AutoresetMode)
def test_it_is_what_is_shown_at_the_end(mode: AutoresetMode) -> None:
    env = ControlEnv(lambda n: SyncVectorEnv([Counts] * n, autoreset_mode=mode), rows=2)
    shown = frames(env, Chooses(lambda x: torch.zeros(len(x), dtype=torch.long)), draw=False)
    assert [frame["observation"] for frame in shown] == [[0, 0], [0, 1], [0, 2], [0, 3]]
