"""Games with lives: a lost one ends an episode for the learner, and attempts are compared by the points of the game."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from support.fakes import algorithm
from torch.testing import assert_close

from rlkit.control import ControlEnv, Lesson
from rlkit.control.vector import LIFE
from rlkit.policies import Network


class Games(VectorEnv[Any, Any, Any]):
    """Noise, three lives, and 1 or 5 points for an action that fits what is seen."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012  # as Gymnasium has it
    single_observation_space, single_action_space = Box(-9, 9, (3,), np.float32), Discrete(3)

    def __init__(self, n: int) -> None:
        self.num_envs, self.draws = n, [np.random.default_rng(0)] * n
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.seen, self.lives = np.zeros((n, 3), np.float32), np.zeros(n, int)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        for i in np.flatnonzero(np.ones(self.num_envs, bool) if options is None else options["reset_mask"]):
            self.draws[i], self.lives[i] = np.random.default_rng(seed[i]), 3
            self.seen[i] = self.draws[i].normal(size=3)
        return self.seen.copy(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        points = np.where(self.seen[np.arange(self.num_envs), actions] > 0.5, np.where(actions == 1, 5.0, 1.0), 0.0)
        lost = np.array([draw.random() < 0.2 for draw in self.draws])
        self.lives -= lost
        self.seen = np.stack([draw.normal(size=3) for draw in self.draws]).astype(np.float32)
        over = self.lives <= 0
        return self.seen.copy(), points, over, np.zeros_like(over), {LIFE: lost & ~over}


def games(rows: int) -> ControlEnv:
    return ControlEnv(Games, rows, lesson=Lesson(signs=True, lives=True))


@pytest.mark.parametrize("without", ["", "begins"])  # which a policy of one's own may not record
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_pair_is_read_as_it_was_played_through_lost_lives(memory: str, without: str) -> None:
    """Before the first update the policy is its own reference, so no side is preferred."""
    env = games(4)
    algo = algorithm("dpo", env, Network(hidden=(8,), memory=memory, memory_size=8), group=4)
    with torch.no_grad():
        for p in [*algo.policy.parameters()]:
            p.mul_(3.0)  # so that memory matters
        for p, now in zip(algo.reference.parameters(), algo.policy.parameters(), strict=True):
            p.copy_(now)
        rollout = algo.rollout(env).exclude(without)
        assert (rollout["done"] & rollout["mask"]).sum() > rollout["mask"].shape[:2].numel(), "lives were lost"
        algo.buffer.extend(algo.credit(rollout))
        _, metrics = algo.loss(next(iter(algo.buffer)))
    assert_close(metrics["margin"], torch.zeros_like(metrics["margin"]), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "config"), [("grpo", {"scale": "none"}), ("reinforce_pp", {"baseline": "group"})])
def test_groups_compare_the_points_of_the_game(name: str, config: dict[str, Any]) -> None:
    env = games(2)
    algo = algorithm(name, env, Network(hidden=(8,)), group=4, **config)
    with torch.no_grad():
        rollout = algo.rollout(env)
        score, mask = rollout["score"].clone(), rollout["mask"].clone().flatten(0, 1)
        assert not torch.equal(score, rollout["reward"].sum(-1)), "rewards are signs"
        found = algo.credit(rollout)["advantage"]
    expected = (score - score.mean(1, keepdim=True)).view(-1, 1).expand_as(mask)
    if name == "reinforce_pp":
        expected = (expected - expected[mask].mean()) / expected[mask].std()
    assert_close(found[mask].float(), expected[mask].float())
