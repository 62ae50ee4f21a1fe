"""Actions that are whole numbers: of a Box each can be played, and evenly where drawn evenly; each has its type."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from rlkit import spaces


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8])
def test_the_highest_and_the_lowest_whole_number_are_played(kind):
    space = Box(0, 3, (1,), kind)
    played = spaces.executed(space, np.array([[-9.0], [0.4], [0.6], [1.5], [2.4], [2.6], [9.0]], dtype=np.float32))
    assert played.dtype == kind and played.ravel().tolist() == [0, 0, 1, 2, 2, 3, 3]


def test_a_bit_is_the_nearer_one():
    """sac and td3 scale their actions to the box: anything above 0 was True, and so nothing was ever False."""
    space = Box(0, 1, (1,), np.bool_)
    played = spaces.executed(space, np.array([[-9.0], [0.0], [0.01], [0.49], [0.51], [9.0]], dtype=np.float32))
    assert played.dtype == np.bool_ and played.ravel().tolist() == [False, False, False, False, True, True]


def test_zero_is_no_more_likely_than_its_neighbors():
    even = np.linspace(-2, 2, 40_001, dtype=np.float32)[:, None]
    played = spaces.executed(Box(-2, 2, (1,), np.int64), even)
    share = np.bincount(played.ravel() + 2) / len(even)
    assert share == pytest.approx([1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8], abs=1e-3)


def test_real_numbers_stay_as_they_are():
    action = np.array([[0.25, -0.75]], dtype=np.float32)
    assert np.array_equal(spaces.executed(Box(-1, 1, (2,), np.float32), action), action)


def test_a_choice_has_the_type_of_its_space():
    """Gymnasium's `contains` refuses an int64 where the space says int32."""
    space = Discrete(4, start=-2, dtype=np.int32)
    assert all(space.contains(action) for action in spaces.executed(space, np.arange(4)))
    both = Tuple((space, Discrete(3, dtype=np.uint8)))
    assert all(both.contains(pair) for pair in zip(*spaces.executed(both, np.array([[0, 2], [3, 0]])), strict=True))
