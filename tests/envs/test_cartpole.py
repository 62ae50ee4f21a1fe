"""CartPole in numpy is Gymnasium's CartPole-v1, step by step."""

import gymnasium
import numpy as np
import pytest
from support.probes import play_both

from rlkit.settings import plugins

cartpole = plugins.load("envs", "cartpole")


def test_random_play_is_the_same_over_seeds_and_episodes():
    rng = np.random.default_rng(0)
    lengths = play_both(
        cartpole.CartPole, "CartPole-v1", range(6), lambda now: rng.integers(0, 2, len(now)), episodes=4
    )
    assert max(lengths) < 500


def test_balanced_play_is_the_same_up_to_the_truncation_at_500():
    balance = lambda now: (now[:, 2] + 0.3 * now[:, 3] + 0.1 * now[:, 1] > 0).astype(int)  # noqa: E731
    lengths = play_both(cartpole.CartPole, "CartPole-v1", range(2), balance, episodes=1)
    assert lengths == [500, 500]


def test_a_reset_leaves_the_other_rows_alone():
    env = cartpole.CartPole(3)
    env.reset(seed=[1, 2, 3])
    before, *_ = env.step(np.array([0, 1, 1]))
    after, _ = env.reset(seed=[9, 9, 9], options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(after[1], gymnasium.make("CartPole-v1").reset(seed=9)[0])
    assert env.steps.tolist() == [1, 0, 1]


@pytest.mark.parametrize("limit", [3, 7])
def test_the_step_limit_truncates_without_terminating(limit):
    env = cartpole.CartPole(2, step_limit=limit)
    env.reset(seed=[0, 1])
    flags = [env.step(np.array([t % 2, t % 2]))[2:4] for t in range(limit)]
    assert [cut.tolist() for _, cut in flags] == [[False, False]] * (limit - 1) + [[True, True]]
    assert not any(over.any() for over, _ in flags)
