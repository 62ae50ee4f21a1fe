"""Episodes drawn frame by frame: what is shown is what was measured."""

import os
import subprocess
import sys
import threading

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import DependencyNotInstalled
from gymnasium.spaces import Box, Discrete
from PIL import Image

from rlkit.api import UserError
from rlkit.control import ControlEnv, video
from rlkit.control.video import frames, write_gif
from rlkit.policies import Actor, ActorCritic, Network
from rlkit.policies.tables import Table
from rlkit.settings import config, plugins

CLASSIC = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "mountaincar": "MountainCar-v0",
    "pendulum": "Pendulum-v1",
}
CAR = {"id": "MountainCarContinuous-v0"}
RIGHT = 2  # in the gridworld


def make(name: str, **keys) -> ControlEnv:
    module = plugins.load("envs", name)
    return module.make(config.build(module.Config, {"rows": 1, **keys}, "env"), 3, torch.device("cpu"))


def walker(state_actions: dict[int, int]) -> Table:
    """A table that walks as it is told."""
    table = Table(64, 4, 0)
    for state, action in state_actions.items():
        table.q.weight.data[state, action] = 1.0
    return table


@pytest.mark.parametrize("name", CLASSIC)
def test_gymnasium_draws_the_very_states_of_the_episode_that_was_measured(name):
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    import gymnasium

    env = make(name, step_limit=6)
    policy = ActorCritic(env, Network())
    shown, measured = frames(env, policy, episode=1), env.evaluate(policy, 2, "test")
    assert sum(frame["reward"] for frame in shown) == pytest.approx(float(measured.score[1]), rel=1e-5)
    assert len(shown) == int(measured.length[1]) + 1 and shown[-1]["action"] is None
    theirs = gymnasium.make(CLASSIC[name], render_mode="rgb_array")
    theirs.reset(seed=env.episode_seed("test", 1))
    for frame in shown:
        theirs.unwrapped.last_u = None  # the pendulum's arrow
        assert (
            np.abs(frame["image"].astype(int) - video.shrunk(theirs.render())).mean() < 0.1
        )  # an edge may lie a pixel off
        if frame["action"] is not None:
            theirs.step(np.array(frame["action"], dtype=np.float32) if name == "pendulum" else frame["action"])


def test_one_thread_at_a_time_draws(monkeypatch):
    """pygame, and the variable that MuJoCo reads, belong to the whole program."""
    free = []

    def ask():
        free.append(video.DRAWING.acquire(blocking=False))
        if free[-1]:
            video.DRAWING.release()

    def look(copies):
        other = threading.Thread(target=ask)
        other.start()
        other.join()
        return np.zeros((4, 4, 3), dtype=np.uint8)

    env = make("cartpole", step_limit=2)
    monkeypatch.setattr(video, "_picture", look)
    monkeypatch.setattr(video, "_nothing", look)
    for draw in (True, False):
        frames(env, Actor(env, Network()), draw=draw)
        assert set(free) == {not draw}
        free.clear()


@pytest.mark.parametrize(("name", "keys"), [("frozenlake", {}), ("cliffwalking", {}), ("taxi", {}), ("gym", CAR)])
def test_the_others_of_gymnasium_are_drawn_too(name, keys):
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    env = make(name, step_limit=3, **keys)
    shown = frames(env, Actor(env, Network()), greedy=False)
    assert len(shown) == 4 and all(frame["image"].dtype == np.uint8 for frame in shown)
    height, width, colors = shown[0]["image"].shape
    assert height > 130 and 200 < width <= video.WIDTH and colors == 3 and shown[0]["value"] is None


def test_the_gridworld_shows_who_walks_to_the_goal_and_that_they_arrived():
    env = make("gridworld", size=4, goal="3,3", trap="0,3", start="3,1")
    shown = frames(env, walker({13: RIGHT, 14: RIGHT}))
    assert [frame["action"] for frame in shown] == [RIGHT, RIGHT, None]
    assert [frame["reward"] for frame in shown] == [0.0, 1.0, 0.0]
    assert [frame["value"] for frame in shown] == [1.0, 1.0, 0.0]

    def center(frame, row, column):
        return tuple(frame["image"][row * 100 + 50, column * 100 + 50])

    walking, goal, trap = (49, 130, 189), (116, 196, 118), (251, 106, 74)
    assert center(shown[0], 3, 1) == walking and center(shown[0], 3, 3) == goal and center(shown[0], 0, 3) == trap
    assert center(shown[2], 3, 3) == walking, "the last state is drawn, not the start of another episode"


def test_the_state_after_a_termination_is_worth_nothing_and_that_after_a_time_limit_what_the_critic_says():
    table = walker({13: RIGHT, 14: RIGHT})
    table.q.weight.data += 3.0  # of the end, too, where nothing is learned
    env = make("gridworld", size=4, goal="3,3", trap="0,3", start="3,1")
    assert [frame["value"] for frame in frames(env, table)] == [4.0, 4.0, 0.0]
    cut = make("gridworld", size=4, goal="3,3", trap="0,3", start="3,1", step_limit=1)
    assert [frame["value"] for frame in frames(cut, table)] == [4.0, 4.0]


def test_pictures_leave_the_environment_and_the_policy_as_they_were():
    env = make("gridworld", step_limit=5)
    table = walker({})
    table.epsilon = 0.5
    before, drawn = table.generator.get_state(), str(env.state_dict())
    one, two = frames(env, table, greedy=False), frames(env, table, greedy=False)
    assert [frame["action"] for frame in one] == [frame["action"] for frame in two]
    assert torch.equal(table.generator.get_state(), before) and str(env.state_dict()) == drawn


def test_a_gif_has_a_picture_for_each_frame_and_says_how_far_it_is(tmp_path):
    drawn = [{"image": np.full((48, 400, 3), 40 * t, np.uint8), "action": 0, "reward": 0.5} for t in range(4)]
    write_gif([*drawn, {"image": np.zeros((48, 400, 3), np.uint8), "action": None, "reward": 0.0}], tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 5 and gif.width == 400 and gif.info["loop"] == 0
        assert gif.height == 48 + video.CAPTION and gif.info["duration"] == video.SLOWEST
        captions = []
        for t in range(5):
            gif.seek(t)
            captions.append(np.asarray(gif.convert("RGB"))[48:].tobytes())
    assert len(set(captions)) == 5


def test_a_caption_fits_beside_a_small_picture(tmp_path):
    found = []
    for width in (60, 140, 400):
        drawn = [{"image": np.full((40, width, 3), 99, np.uint8), "action": 0, "reward": -13.1915} for _ in range(20)]
        write_gif([*drawn, {**drawn[0], "action": None, "reward": 0.0}], tmp_path / "a.gif")  # step 20, -263.83, end
        with Image.open(tmp_path / "a.gif") as gif:
            assert np.abs(np.asarray(gif.convert("RGB"))[:40, :width].astype(int) - 99).max() < 5
            gif.seek(gif.n_frames - 1)
            found.append(np.asarray(gif.convert("L"))[40:] < 128)
    dark = [np.argwhere(caption).tolist() for caption in found]
    assert dark[0] == dark[1] == dark[2] and found[0].shape[1] < 200


@pytest.mark.parametrize(
    ("earned", "text"), [(0.0, "0"), (3e-17, "0"), (-0.0028, "-0.0028"), (0.1 + 0.2, "0.3"), (-1178.456, "-1178.46")]
)
def test_a_small_return_is_not_written_as_0(earned, text):
    assert video._return(earned) == text


def test_of_a_long_episode_some_pictures_are_left_out_and_never_the_last(tmp_path):
    drawn = [{"image": np.full((8, 8, 3), t % 251, np.uint8), "action": 0, "reward": 1.0} for t in range(1100)]
    write_gif(drawn, tmp_path / "long.gif")
    with Image.open(tmp_path / "long.gif") as gif:
        assert 200 < gif.n_frames <= video.MOST + 1
        gif.seek(gif.n_frames - 1)
        assert abs(int(np.asarray(gif.convert("RGB"))[0, 0, 0]) - 1099 % 251) < 5


def test_what_cannot_be_drawn_is_refused_in_one_line(tmp_path):
    env = make("gridworld", step_limit=3)
    bare = ControlEnv(lambda n: type(env.vector(n))(env.model(), n, 3), 1)
    with pytest.raises(UserError, match="cannot be drawn"):
        frames(bare, walker({}))

    def missing():
        raise DependencyNotInstalled("pygame is\nnot installed")

    env.drawn = missing
    with pytest.raises(UserError, match=r"'gymnasium\[classic-control,toy-text\]' \(pygame is not installed\)"):
        frames(env, walker({}))
    shown = [{"image": np.zeros((8, 8, 3), np.uint8), "action": None, "reward": 0.0}]
    with pytest.raises(UserError, match="cannot write"):
        write_gif(shown, tmp_path / "nowhere" / "a.gif")


class Drawn(gymnasium.Env):
    """Its picture is its keyword."""

    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(2)

    def __init__(self, picture, render_mode=None):
        self.picture, self.render_mode = picture, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, True, False, {}

    def render(self):
        return self.picture


def drawn(picture: object, make: object = Drawn) -> list:
    gym = plugins.load("envs", "gym")
    env = gym.make(gym.Config(1, kwargs={"picture": picture}, entry="<x>"), 0, "cpu", factory=make)
    return frames(env, Actor(env, Network(hidden=())))


def test_what_a_picture_has_to_be():
    assert drawn(np.full((2, 900, 3), 7, np.uint8))[0]["image"].shape == (1, 400, 3)
    for gray in (np.full((1, 900), 7), np.full((1, 900, 1), 7)):
        assert drawn(gray)[0]["image"].tolist() == [[[7] * 3] * 400]
    for wrong in (np.full((2, 2, 3), 0.5), "abc", [np.zeros((2, 2, 3), np.uint8)], np.zeros((3, 8, 8), np.uint8)):
        with pytest.raises(UserError, match=r"render gave a picture of type .*: return bytes of \[height, width, 3\]"):
            drawn(wrong)
    with pytest.raises(UserError, match=r"cannot be drawn \(.*: let it take render_mode=rgb_array, as Gymnasium's do$"):
        drawn(None, lambda picture: Drawn(picture))


def test_mujoco_draws_without_a_screen_or_says_in_one_line_that_it_cannot(monkeypatch):
    pytest.importorskip("mujoco")
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.setenv(name, "")  # what was there before comes back
        monkeypatch.delenv(name)
    with video.drawn_by_egl():
        assert os.environ.get("MUJOCO_GL") == ("egl" if os.uname().sysname == "Linux" else None)
    assert "MUJOCO_GL" not in os.environ
    monkeypatch.setenv("MUJOCO_GL", "nothing")
    env = make("hopper", step_limit=2)
    with pytest.raises(UserError, match=r"^MuJoCo cannot draw here \(RuntimeError: .*\): set MUJOCO_GL=egl, or"):
        frames(env, Actor(env, Network(hidden=())))


def test_mujoco_without_the_library_that_should_draw_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "mujoco.py").write_text("raise AttributeError('nothing has no attribute glGetError')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(
        UserError, match=r"^MuJoCo cannot be imported with MUJOCO_GL=osmesa \(AttributeError: .*\): unset"
    ):
        make("hopper")


@pytest.mark.parametrize("file", ["notes.txt", "__init__.py"])
def test_a_folder_by_the_name_of_mujoco_is_one_line(file, tmp_path, monkeypatch):
    (tmp_path / "mujoco").mkdir()
    (tmp_path / "mujoco" / file).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(x for x in sys.path if "site-packages" not in x)])
    monkeypatch.setitem(sys.modules, "mujoco", None)
    del sys.modules["mujoco"]
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(UserError, match=rf"^Python finds {tmp_path}/mujoco\S* in the place of MuJoCo: rename it or"):
        make("hopper")


def test_no_sound_is_opened_for_pictures(tmp_path):
    """Opened, it writes into ~/.config, and errors to a terminal."""
    lines = "from rlkit.control import video; video.prepare(); import pygame; pygame.init()"
    given = {key: x for key, x in os.environ.items() if not key.startswith("SDL_")} | {"HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", lines], env=given, capture_output=True, text=True, check=True)
    assert "ALSA" not in done.stderr and not [*tmp_path.iterdir()]
