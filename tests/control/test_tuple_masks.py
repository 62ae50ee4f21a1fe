"""A mask of several choices may come as a tuple of masks, as Gymnasium's own spaces take it."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple
from support.fakes import algorithm, iterate

from rlkit.api import UserError
from rlkit.control.contract import check_copies
from rlkit.control.masks import MaskInObservation, tells_mask
from rlkit.policies import Network
from rlkit.python.policy import Policy
from rlkit.settings import plugins

ONE, OTHER = np.array([0, 1], dtype=np.int8), np.array([1, 0, 1], dtype=np.int8)


class Door(gymnasium.Env[Any, Any]):
    """Two choices, of two and of three values; `mask` says which are allowed."""

    def __init__(self, actions: Any, mask: Any = (ONE, OTHER)) -> None:
        self.observation_space, self.action_space, self.mask = Box(-1, 1, (1,)), actions, mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {"action_mask": self.mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        first, second = (int(x) for x in action)
        assert ONE[first] and OTHER[second], "a forbidden action was played"
        return np.zeros(1, np.float32), float(second), False, bool(self.np_random.random() < 0.3), self.reset()[1]


@pytest.mark.parametrize("actions", [MultiDiscrete([2, 3]), Tuple((Discrete(2), Discrete(3)))], ids=str)
def test_a_tuple_of_masks_is_kept_to(actions: Any) -> None:
    make = partial(Door, actions)
    check_copies(make, "env.entry=door:Door")
    assert actions.contains(actions.sample(mask=make().mask))
    seen = MaskInObservation(make()).reset(seed=0)[0]["action_mask"]
    assert seen.tolist() == [*ONE, *OTHER]
    module = plugins.load("envs", "gym")
    env = module.make(module.Config(rows=2), 0, "cpu", factory=make)
    algo = algorithm("ppo", env, Network(hidden=(8,)), horizon=8)
    iterate(algo, env)


@pytest.mark.parametrize("mask", [(ONE, None), (ONE,), None], ids=["one of two", "one", "none"])
def test_a_mask_that_lacks_entries_is_one_line(mask: Any) -> None:
    with pytest.raises(UserError, match=r"^action_mask has [02] entries, and there are 5 actions: give one each$"):
        MaskInObservation(Door(MultiDiscrete([2, 3]), mask)).reset(seed=0)


def test_whatever_is_not_0_is_allowed() -> None:
    mask = np.array([0.0, 0.5, 256.0, 0.0, 1.0])
    seen = MaskInObservation(Door(MultiDiscrete([2, 3]), mask)).reset(seed=0)[0]["action_mask"]
    assert seen.tolist() == [0, 1, 1, 0, 1]


def test_a_mask_of_an_info_is_predicted_from_as_it_came() -> None:
    """A tuple, or any numbers; two observations at once have a row each."""
    module = plugins.load("envs", "gym")
    env = module.make(module.Config(rows=2), 0, "cpu", factory=partial(Door, MultiDiscrete([2, 3])))
    policy, seen = Policy(env, Network(hidden=(8,)).actor(env)), np.zeros(1, np.float32)
    masks: list[Any] = [(ONE, OTHER), np.array([0.0, 0.5, 256.0, 0.0, 1.0]), np.array([False, True, True, False, True])]
    actions = [policy.predict({"observation": seen, "action_mask": mask}).tolist() for mask in masks]
    assert actions[0] == actions[1] == actions[2] and actions[0][0] == 1 and actions[0][1] != 1
    both = policy.predict({"observation": np.stack([seen] * 2), "action_mask": np.stack(masks[1:])})
    assert both.tolist() == actions[1:]


class AsksMaskable(gymnasium.Env[Any, Any]):
    """As sb3-contrib's MaskablePPO asks: by a method."""

    observation_space, action_space = Box(-1, 1, (1,)), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, True, False, {}

    def action_masks(self) -> list[bool]:
        return [True, False]


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 5)])
def test_a_method_that_nobody_calls_is_said_once(wrap: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not tells_mask(lambda: wrap(AsksMaskable()), "env.entry=mine")
    told = capsys.readouterr().err
    assert told.startswith("env.entry=mine has action_masks(), which is not called here, so all actions are allowed: ")
    assert told.count("\n") == 1


class Late(gymnasium.Env[Any, Any]):
    """Says only in its steps what is allowed."""

    observation_space, action_space = AsksMaskable.observation_space, AsksMaskable.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, True, False, {"action_mask": np.array([1, 0])}


def test_a_mask_that_a_reset_does_not_give_is_said_to_be_unused(capsys: pytest.CaptureFixture[str]) -> None:
    assert not tells_mask(Late, "env.entry=mine")
    told = capsys.readouterr().err
    assert told.startswith("env.entry=mine gives no action_mask in its reset, so all actions are allowed: give ")
