"""What nobody played is not looked at: rollouts of different lengths are padded with zeros where they are joined."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from tensordict import TensorDict

from rlkit.buffers import concatenate
from rlkit.doctor import symptoms


def played(length: int, acted: bool = True) -> TensorDict:
    """Four rows of so many steps, that see and do what lies in the middle of [1, 2]."""
    generator = torch.Generator().manual_seed(length)
    data = {"observation": 1.4 + 0.2 * torch.rand(4, length, 1, generator=generator)}
    data["action"] = 1.2 + 0.6 * torch.rand(4, length, 1, generator=generator)
    return TensorDict({**data, "mask": torch.full((4, length), acted)}, batch_size=[4])


def env(space: Any) -> Any:
    return SimpleNamespace(observation_space=space, action_space=Box(1, 2, (1,)))


@pytest.mark.parametrize("shorter", [played(9), played(30, acted=False)], ids=["padded", "waiting"])
def test_only_what_was_acted_on_is_looked_at(shorter: TensorDict) -> None:
    rollout, both = played(100), concatenate([played(100), shorter])
    if not shorter["mask"].any():
        both["observation"][4:] = both["action"][4:] = 0.0
    here = env(Box(1, 2, (1,)))
    for found in (symptoms.of_observations, symptoms.of_actions):
        alone, together = (symptoms.read(found(x, here)) for x in (rollout, both))
        assert together["outside" if "outside" in alone else "saturated"] <= 0
        assert together.keys() == alone.keys()
    assert symptoms.read(symptoms.of_actions(both, here))["reach"] < 1


@pytest.mark.parametrize("space", [Box(1, 2, (1,)), Discrete(3)], ids=str)
def test_where_nobody_acted_there_is_nothing_to_look_at(space: Any) -> None:
    nothing = played(5, acted=False)
    if isinstance(space, Discrete):
        nothing["observation"] = torch.zeros(4, 5, dtype=torch.long)
    assert "outside" not in symptoms.of_observations(nothing, env(space))
    assert not symptoms.of_actions(nothing, env(space))


@pytest.mark.filterwarnings("error")
def test_bounds_beyond_float32_are_infinite() -> None:
    here = env(Box(-1e300, 1e300, (1,), np.float64))
    assert symptoms.read(symptoms.of_observations(played(5), here))["outside"] == -np.inf
