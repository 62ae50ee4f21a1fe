"""An environment that shows images, which is quick."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Screen(gymnasium.Env[Any, Any]):
    """An image of 64 x 64 whose shade tells the start and the step; an episode has seven steps."""

    observation_space, action_space = Box(0, 255, (64, 64), np.uint8), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.shade = 0, int(self.np_random.integers(1, 9))
        return np.full((64, 64), self.shade, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full((64, 64), self.shade + 10 * self.time, np.uint8), float(action), self.time == 7, False, {}
