"""Observations of several dimensions and of several choices: TorchRL's modules read them as ours do."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import SyncVectorEnv
from support.fakes import control
from torch.testing import assert_close
from torchrl.envs import FlattenObservation, GymWrapper, TransformedEnv
from torchrl.objectives import ClipPPOLoss

from rlkit import policies
from rlkit.control import ControlEnv
from rlkit.interop import from_torchrl, to_torchrl


class Squares(gymnasium.Env[Any, int]):
    """Observations of several dimensions: numbers, or an image."""

    def __init__(self, image: bool) -> None:
        self.observation_space: Any = Box(0, 255, (6, 6, 3), np.uint8) if image else Box(-9, 9, (2, 3), np.float32)
        self.action_space: Any = Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 1.0, False, False, {}


class Choices(Squares):
    """Observations of several whole numbers."""

    def __init__(self) -> None:
        super().__init__(False)
        self.observation_space = MultiDiscrete([2, 3, 4])


def test_torchrl_estimates_values_where_several_choices_are_observed() -> None:
    """Its estimator calls the critic under torch.vmap."""
    env = control(Choices, 2, 5)
    policy = policies.Network(hidden=(8,)).actor_critic(env)
    rollout = env.rollout(policy, steps=4)
    (actor, critic), batch = to_torchrl(policy), to_torchrl(rollout)
    loss = ClipPPOLoss(actor, critic)
    loss.make_value_estimator(gamma=0.9, lmbda=0.9)
    loss.value_estimator(batch)
    assert_close(batch["state_value"][..., 0], rollout["value"])


@pytest.mark.parametrize(("image", "key", "dimensions"), [(True, "pixels", 3), (False, "observation", 2)])
def test_observations_of_several_dimensions_are_flattened_there(image: bool, key: str, dimensions: int) -> None:
    """As docs/your_own.md says."""
    ours = ControlEnv(lambda n: SyncVectorEnv([partial(Squares, image)] * n), rows=2)
    policy = policies.Network(hidden=(8,)).actor_critic(ours)
    flat = FlattenObservation(-dimensions, -1, in_keys=[key], out_keys=["observation"])
    actor, critic = to_torchrl(policy)
    collected = TransformedEnv(GymWrapper(Squares(image), categorical_action_encoding=True), flat).rollout(5, actor)
    rollout = from_torchrl(collected, ours)
    recorded = policy.record(rollout)
    assert_close(rollout["log_prob"], recorded["log_prob"])
    assert_close(critic(collected)["state_value"][..., 0], recorded["value"][0])
