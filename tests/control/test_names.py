"""The names of observations and actions fit the spaces that they name."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from support.fakes import environment

from rlkit import spaces
from rlkit.control import names
from rlkit.pages import seen

SHIPPED = ["cartpole", "acrobot", "mountaincar", "pendulum", "frozenlake", "cliffwalking", "taxi", "gridworld"]
HEAVY = {"lunarlander": "Box2D", "hopper": "mujoco", "halfcheetah": "mujoco", "minigrid": "minigrid"}


@pytest.mark.parametrize("name", [*SHIPPED, *HEAVY])
def test_a_shipped_environment_has_a_name_for_each_number(name: str) -> None:
    if name in HEAVY:
        pytest.importorskip(HEAVY[name])
    env = environment(name, rows=1)
    called = names.of(env)
    assert len(called.action) == names.components(env.action_space) > 0
    if name not in [*SHIPPED[4:], "minigrid"]:
        assert len(called.observation) == names.components(env.observation_space) > 0
    assert len(set(called.observation)) == len(called.observation)


def test_the_names_of_a_gymnasium_id_are_those_of_the_shipped_environment() -> None:
    assert names.of(environment("gym", rows=1, id="CartPole-v1")) == names.of(environment("cartpole", rows=1))


def test_what_is_unknown_or_does_not_fit_has_no_names() -> None:
    env = environment("cartpole", rows=1)
    env.source = "CartPole-v9"
    assert names.of(env) == names.Names()
    env.source, env.action_space = "CartPole-v1", Discrete(3)
    assert names.of(env).action == () and len(names.of(env).observation) == 4


def test_every_entry_fits_the_environment_that_is_registered_under_it() -> None:
    for name, each in names.KNOWN:
        if name not in gymnasium.registry or "classic_control" not in str(gymnasium.spec(name).entry_point):
            continue
        one = gymnasium.make(name)
        assert len(each.observation) == names.components(one.observation_space), name
        assert len(each.action) == names.components(one.action_space), name
        one.close()


def test_an_image_that_is_observed_is_shown_as_a_picture() -> None:
    color = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    assert (seen.picture(color, True, False)[::80, ::80] == color).all()
    stack = np.stack([np.full((8, 8), 9), np.full((8, 8), 200)]).astype(np.uint8)
    assert (seen.picture(stack, False, False) == 200).all()  # the newest of several
    bits = np.zeros((5, 5, 4), dtype=np.uint8)
    bits[0, 0, 1] = bits[4, 4, 3] = 1
    shown = seen.picture(bits, True, True)
    assert shown.shape == (320, 320, 3) and len(np.unique(shown.reshape(-1, 3), axis=0)) == 3
    assert names.components(Box(0, 1, (2, 3))) == 6


def test_a_black_frame_of_a_film_in_colors_stays_black() -> None:
    frames: list[Any] = [{"observation": np.full((8, 8, 3), shade, np.uint8).tolist()} for shade in (0, 1, 200)]
    env: Any = SimpleNamespace(observation_space=Box(0, 255, (8, 8, 3), np.uint8))
    assert [int(shown.max()) for shown in seen.images(env, frames) or []] == [0, 1, 200]


def test_the_parts_of_a_dict_are_shown_as_numbers_with_their_names() -> None:
    space = Dict({"goal": Discrete(300), "near": Dict({"at": Box(-1, 1, (2,))})})
    row = spaces.one(space, {"goal": 257, "near": {"at": np.array([0.5, -0.25], np.float32)}})
    frame: Any = {"observation": row.tolist(), "action": 1, "reward": 0.0, "value": None}
    env: Any = SimpleNamespace(source="", observation_space=space, action_space=Discrete(2))
    told = seen.told(env, [frame, frame])
    assert told["observation"] == [[257, 0.5, -0.25]] * 2
    assert told["names"]["observation"] == ["goal", "near.at 0", "near.at 1"]


def test_the_numbers_of_an_image_in_a_dict_are_neither_shown_nor_named() -> None:
    space = Dict({"camera": Box(0, 255, (16, 16, 3), np.uint8), "goal": Discrete(4)})
    row = spaces.one(space, {"camera": np.zeros((16, 16, 3), np.uint8), "goal": 2})
    frame: Any = {"observation": row.tolist(), "action": 1, "reward": 0.0, "value": None}
    env: Any = SimpleNamespace(source="", observation_space=space, action_space=Discrete(2))
    told = seen.told(env, [frame])
    assert told["observation"] is None
    assert told["names"]["observation"] == []
