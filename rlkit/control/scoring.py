"""Whole episodes that are only scored."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rlkit.api import Acts
from rlkit.control import requirements
from rlkit.control.recall import at_play
from rlkit.control.vector import Array, Copies
from rlkit.policies.base import measured
from rlkit.waiting import advance

Measured = tuple[Array, Array, Array]  # the return, the length and whether it was truncated, of each episode [n]


def whole_episodes(
    copies: Copies,
    policy: Acts,
    seeds: Sequence[int],
    act: Callable[[Acts, Array], Array],
    patience: int,
    endless: Callable[[], Exception],
    source: str,
) -> Measured:
    """An episode from each reset seed; it was truncated where its last step says so and did not terminate it.

    Raises: what `endless` makes, where one has not ended after `patience` steps.
    """
    copies.reset(seeds)
    whole, policy = policy, at_play(policy, copies)
    alive, score, length = copies.acting.copy(), np.zeros(copies.n), np.zeros(copies.n, dtype=np.int64)
    truncated = np.zeros(copies.n, dtype=bool)
    with torch.inference_mode(), measured(whole):
        while alive.any():
            action = act(policy, copies.observation)
            requirements.check_actions(action, alive, seeds, source)
            _, reward, terminated, done = copies.step(action)
            score += np.where(alive, reward, 0.0)
            length += alive
            truncated |= alive & done & ~terminated
            alive &= ~done
            advance(int((~alive).sum()), copies.n)
            if alive.any() and length.max() >= patience:
                raise endless()
    requirements.check_scores(score, seeds, source)
    return score, length, truncated
