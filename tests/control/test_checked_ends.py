"""Ends of steps that are neither True nor False are one line, whatever made the environment."""

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit
from support.probes import Draws
from test_contract import LaterNumber, LaterText

from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.control.contract import checked
from rlkit.control.ends import either


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize(
    ("env", "told"), [(LaterText, "terminated of type str"), (LaterNumber, "truncated of type int")]
)
def test_those_of_copies_in_a_vector_environment_of_ones_own_are_one_line(
    env: Any, told: str, mode: AutoresetMode
) -> None:
    made = ControlEnv(lambda n: SyncVectorEnv([env] * n, autoreset_mode=mode), 2, source="mine")
    with pytest.raises(UserError, match=rf"^mine: step gave {told}: return True or False$"):
        made.rollout(Draws(made), steps=4)


class Native(VectorEnv[Any, Any, Any]):
    """Three copies in arrays, whose episodes have 3, 4 and 5 steps."""

    def __init__(self, kind: str, mode: AutoresetMode) -> None:
        self.num_envs, self.kind = 3, kind
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = Box(-9, 9, (1,)), Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.age = np.where((options or {}).get("reset_mask", True), 0, self.age) if options else np.zeros(3, int)
        return np.float32(self.age)[:, None], {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.age = self.age + 1
        done = self.age >= 3 + np.arange(3)
        return np.float32(self.age)[:, None], np.ones(3), done.astype(self.kind), (done & False).astype(self.kind), {}


@pytest.mark.parametrize("given", [[False] * 3, False])
def test_flags_of_a_vector_environment_that_are_no_array_are_one_line(given: object) -> None:
    kind = type(given).__name__
    with pytest.raises(UserError, match=f"^mine: step gave .* of one {kind} and one {kind}: return arrays of bool"):
        either(given, given, "mine")


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_columns_of_a_vector_environment_in_place_of_rows_are_one_line(wrong: int) -> None:
    """NumPy would add rewards of [n, 1] to each copy's sum."""

    class Column(Native):
        def step(self, actions: Any) -> Any:
            given = list(super().step(actions))
            given[wrong] = given[wrong][:, None]
            return tuple(given)

    made = ControlEnv(lambda n: Column("bool", AutoresetMode.DISABLED), 3, source="mine")
    with pytest.raises(UserError, match=r"step gave reward, terminated .* shapes .*\(3, 1\).*: return one value"):
        made.rollout(Draws(made), steps=8)


@pytest.mark.parametrize("kind", ["uint8", "int64", "float32"])
def test_numbers_in_place_of_flags_of_a_vector_environment_are_one_line(kind: str) -> None:
    """As an index, numbers choose rows 0 and 1: other copies were reset than those that ended."""
    made = ControlEnv(lambda n: Native(kind, AutoresetMode.DISABLED), 3, source="mine")
    said = rf"step gave terminated and truncated of {kind} and {kind}: return arrays of bool"
    with pytest.raises(UserError, match=said):
        made.rollout(Draws(made), steps=8)
    made = ControlEnv(lambda n: Native("bool", AutoresetMode.DISABLED), 3, source="mine")
    assert made.rollout(Draws(made), steps=8)["episode_length"].sum(-1).tolist() == [6, 8, 5]


def test_a_vector_environment_that_resets_all_copies_where_one_ended_is_one_line() -> None:
    class All(Native):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return super().reset(seed=seed)

    made = ControlEnv(lambda n: All("bool", AutoresetMode.DISABLED), 3, source="mine")
    assert made.rollout(Draws(made), steps=2)["mask"].all()
    with pytest.raises(UserError, match=r"All\(.*\): a reset of some copies changed others, too: start those"):
        made.rollout(Draws(made), steps=1)


def test_a_vector_environment_that_does_not_reset_itself_as_it_says_is_one_line() -> None:
    made = ControlEnv(lambda n: Native("bool", AutoresetMode.NEXT_STEP), 3, source="mine")
    assert made.rollout(Draws(made), steps=3)["done"].sum() == 1
    with pytest.raises(UserError, match=r"Native\(.*\): a step after the end of an episode ended it again, so no copy"):
        made.rollout(Draws(made), steps=1)


def test_a_vector_environment_of_same_step_that_hides_what_was_seen_last_is_one_line() -> None:
    made = ControlEnv(lambda n: Native("bool", AutoresetMode.SAME_STEP), 3, source="mine")
    with pytest.raises(
        UserError, match=r"Native\(.*\): a step of mode SAME_STEP that ended .* gave no info\['final_obs'\]"
    ):
        made.rollout(Draws(made), steps=3)


def test_a_mode_may_be_a_text_of_gymnasium_and_no_other() -> None:
    def made(mode: Any) -> ControlEnv:
        return ControlEnv(lambda n: Native("bool", mode), 3, source="mine")

    assert made("Disabled").rollout(Draws(made("Disabled")), steps=4)["done"].any()
    with pytest.raises(
        UserError, match=r"Native\(.*\) does not say how it resets: set metadata\['autoreset_mode'\] to"
    ):
        made("DISABLED").rollout(Draws(made("Disabled")), steps=1)


class Rising(gymnasium.Env[Any, Any]):
    """Pays its level at each step."""

    observation_space, action_space, level = gymnasium.spaces.Box(0, 9, (1,)), gymnasium.spaces.Discrete(2), 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, dtype=np.float32), self.level, False, False, {}


class Levels(SyncVectorEnv):
    """Raises the level of its copies."""

    def step(self, actions: Any) -> Any:
        for env in self.envs:
            env.level += 1.0  # type: ignore[attr-defined]
        return super().step(actions)


ONE, SHARED = Rising(), SyncVectorEnv([Rising] * 4)
EACH_TIME = "gives the same environment each time: let it make a new one, so that none is shared"


@pytest.mark.parametrize(
    ("vector", "told"),
    [
        (lambda n: SHARED, EACH_TIME),
        (lambda n: SyncVectorEnv([lambda: TimeLimit(ONE, 9)] * n), EACH_TIME),
        (lambda n: SyncVectorEnv([Rising] * 4), "has 4 copies where 3 were asked for: make as many as that"),
    ],
)
def test_copies_that_are_shared_or_of_another_number_are_one_line(vector: Any, told: str) -> None:
    with pytest.raises(UserError, match=f"^mine {told}$"):
        made = ControlEnv(vector, 4, source="mine")
        made.evaluate(Draws(made), 4 if vector(4) is SHARED else 3)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_environment_of_ones_own_reads_and_sets_what_its_copies_have(mode: AutoresetMode) -> None:
    made = ControlEnv(lambda n: Levels([Rising] * n, autoreset_mode=mode), 2)
    assert made.rollout(Draws(made), steps=3)["reward"].tolist() == [[2.0, 3.0, 4.0]] * 2


def test_a_copy_whose_step_is_checked_is_itself_and_can_be_copied() -> None:
    vector = Levels([Rising])
    checked(vector, "it", 1)
    env = vector.envs[0]
    assert isinstance(env, Rising)
    env.render_mode = "ansi"  # a wrapper has none to set
    other = copy.deepcopy(env)
    other.level = 5.0
    assert (env.step(0)[1], other.step(0)[1], env.render_mode) == (1.0, 5.0, "ansi")
