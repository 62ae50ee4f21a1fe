"""Random rollouts of large observations: rows that go on, end, are cut off, and are reset in steps nobody acts in."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from rlkit.algorithms._replay import OffPolicy
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers
from rlkit.buffers import frames as module

SIDE = 4  # of the images here, which count as large
IMAGE = {
    "first": Box(0, 255, (3 + 1, SIDE, SIDE + 1), np.uint8),
    "last": Box(0, 255, (SIDE, SIDE + 1, 2), np.uint8),
    "colors": Box(0, 255, (SIDE, SIDE + 1, 3), np.uint8),
    "floats": Box(-9, 9, (5,), np.float32),
    "parts": Dict({"image": Box(0, 255, (2, 3, 3), np.uint8), "speed": Box(-1, 1, (1,), np.float32)}),
}


class Source:
    """Random rollouts of rows that go on, end, are cut off, and are reset in steps that nobody acts in."""

    def __init__(self, kind: str, rows: int, seed: int) -> None:
        self.draw, self.rows = np.random.default_rng(seed), rows
        self.layout = module.layout(IMAGE[kind])
        self.dtype = np.float32 if kind == "floats" else np.uint8
        self.width = 2 * 9 + 4 if kind == "parts" else int(np.prod(IMAGE[kind].shape or ()))
        self.now = [self.first() for _ in range(rows)]
        self.over = [False] * rows

    def frame(self) -> Tensor:
        assert self.layout is not None
        size = self.width // self.layout.count
        return torch.from_numpy(self.draw.integers(0, 3, size).astype(self.dtype))

    def first(self) -> Tensor:
        assert self.layout is not None
        return torch.stack([self.frame()] * self.layout.count)

    def step(self, row: int) -> dict[str, Any]:
        if resets := self.over[row]:  # nobody acts: it is only reset
            now, self.now[row], self.over[row] = self.now[row], self.first(), False
            after, ended, cut = self.now[row], False, False
        else:
            now, after = self.now[row], torch.cat([self.now[row][1:], self.frame()[None]])
            ended, cut = self.draw.random(2) < (0.1, 0.1)
            self.over[row] = bool((ended or cut) and self.draw.random() < 0.5)
            self.now[row] = self.first() if (ended or cut) and not self.over[row] else after
        assert self.layout is not None
        seen = {"observation": self.layout.join(now[None])[0], "next_observation": self.layout.join(after[None])[0]}
        flags = {"terminated": bool(ended), "done": bool(ended or cut), "mask": not resets}
        return seen | {key: torch.tensor(x) for key, x in flags.items()} | {"reward": torch.tensor(float(now.sum()))}

    def rollout(self, steps: int) -> TensorDict:
        rows = [[self.step(row) for _ in range(steps)] for row in range(self.rows)]
        data = {key: torch.stack([torch.stack([x[key] for x in row]) for row in rows]) for key in rows[0][0]}
        return TensorDict(data, batch_size=[self.rows])


def credits(n: int) -> OffPolicy:
    """What credits a rollout with sums of n steps, and nothing else."""
    config = SimpleNamespace(n_step=n, gamma=0.9)
    return cast(OffPolicy, SimpleNamespace(config=config, window=buffers.Window(n - 1)))
