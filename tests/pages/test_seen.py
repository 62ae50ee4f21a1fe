"""What a replay shows of an action is what the environment got."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from rlkit.pages.seen import executed

BOTH = Dict(a=Discrete(2, start=3), b=Discrete(2))


@pytest.mark.parametrize(
    "space, chosen, shown",
    [
        (Discrete(3, start=5), 2, 7),
        (Discrete(3), 2, 2),
        (Box(-2, 2, (2,), np.float32), [3.5, -0.5], [2.0, -0.5]),
        (Box(-1, 2, (1,), np.int64), [0.7], [1]),
        (Box(0, 1, (2,), np.bool_), [0.7, 0.1], [1, 0]),
        (MultiDiscrete([2, 3], start=[1, 0]), [1, 2], [2, 2]),
        (MultiBinary(2), [1, 0], [1, 0]),
        (BOTH, [1, 0], [1, 0]),
        (Discrete(3, start=5), None, None),
    ],
)
def test_an_action_is_shown_as_the_environment_gets_it(space: Any, chosen: Any, shown: Any) -> None:
    assert repr(executed(space, chosen)) == repr(shown)
