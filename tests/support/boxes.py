"""An environment whose actions fill a box, and steps in it as a replay hands them out."""

from typing import Any

import torch
from gymnasium.spaces import Box
from tensordict import TensorDict

from support.fakes import Ring, control

GAMMA = 0.96875


def continuous(low: float = -1.0, high: float = 1.0, size: int = 2) -> Any:
    env = control(Ring, 8, 3)
    env.observation_space, env.action_space = Box(-1, 1, (3,)), Box(low, high, (size,))
    return env


def drawn_batch(space: Box, rows: int = 32) -> TensorDict:
    """Steps as a replay hands them out, in double precision."""
    draw = torch.Generator().manual_seed(0)
    observation, after = torch.randn(2, rows, 3, generator=draw, dtype=torch.float64)
    unit = torch.rand(rows, *space.shape, generator=draw, dtype=torch.float64)
    data = {"observation": observation, "next_observation": after}
    data |= {"action": torch.as_tensor(space.low) + unit * torch.as_tensor(space.high - space.low)}
    data |= {"reward": 3 * torch.randn(rows, generator=draw, dtype=torch.float64)}
    data |= {"terminated": torch.rand(rows, generator=draw) < 0.3, "mask": torch.ones(rows, dtype=torch.bool)}
    data |= {
        "discount": torch.full((rows,), GAMMA).double(),
        "weight": torch.rand(rows, generator=draw).double() / rows,
    }
    return TensorDict(data, batch_size=[rows])
