"""env.wrappers: gymnasium.wrappers by name and one's own, with what they take; resume, trust, and what is refused."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation, TimeAwareObservation
from rlkit.envs import gym

from rlkit.api import UserError
from rlkit.control import ControlEnv, wrapping
from rlkit.run import main

MINE = """
import gymnasium

class Scaled(gymnasium.Wrapper):
    def __init__(self, env, by=2.0):
        super().__init__(env)
        self.by = by

    def step(self, action):
        seen, reward, *rest = self.env.step(action)
        return seen, self.by * reward, *rest

def nothing(env):
    return None
"""
SMALL = ["algo=ppo", "env=gym", "env.id=CartPole-v1", "algo.horizon=16", "evaluation_episodes=2"]


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return f"{path}:Scaled"


def one(*names: str, **keywords: object) -> gymnasium.Env:
    return gym.make_one(gym.Config(1, "CartPole-v1", wrappers=names, wrapper_kwargs=keywords))


def test_the_first_is_innermost_and_each_takes_its_own(mine: str) -> None:
    env = one("TimeAwareObservation", "FrameStackObservation", mine, FrameStackObservation={"stack_size": 3})
    chain = [env, env.env, env.env.env]
    assert [type(x).__name__ for x in chain] == ["Scaled", "FrameStackObservation", "TimeAwareObservation"]
    twin = FrameStackObservation(TimeAwareObservation(gymnasium.make("CartPole-v1")), 3)
    assert np.array_equal(env.reset(seed=3)[0], twin.reset(seed=3)[0])
    for action in (0, 1, 1):
        (seen, reward, *_), (expected, single, *_) = env.step(action), twin.step(action)
        assert np.array_equal(seen, expected) and reward == 2 * single
    dotted = {"Scaled.by": 5.0}
    assert one(mine, **dotted).by == one(mine, Scaled={"by": 5.0}).by == 5.0


class Shuffles(gymnasium.Wrapper):
    """Takes the order of its list from the seed of a reset."""

    def __init__(self, env: gymnasium.Env, order: list[int]) -> None:
        super().__init__(env)
        self.order = order

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        seen = super().reset(**keywords)
        self.order.sort()
        self.unwrapped.np_random.shuffle(self.order)
        return seen


def shuffling(order: list[int], render_mode: str | None = None) -> Shuffles:
    return Shuffles(gymnasium.make("CartPole-v1"), order)


def test_no_copy_changes_what_another_one_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [1, 2, 3, 4, 5]
    monkeypatch.setattr(wrapping, "named", lambda *_: Shuffles)
    monkeypatch.setitem(gymnasium.registry, "Own-v0", gymnasium.envs.registration.EnvSpec("Own-v0", shuffling))
    of_id = gym.Config(1, "Own-v0", kwargs={"order": given})
    for make in (lambda: one("a:Shuffles", Shuffles={"order": given}), lambda: gym.make_one(of_id)):
        first, second = make(), make()
        first.reset(seed=0)
        order = list(first.get_wrapper_attr("order"))
        second.reset(seed=1)
        assert first.get_wrapper_attr("order") == order != second.get_wrapper_attr("order")
    assert given == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("wrapper", "key"),
    [("NormalizeObservation", "policy.normalize"), ("NormalizeReward", "algo.normalize_reward")],
)
def test_statistics_of_copies_are_refused_also_inside_of_ones_own(wrapper: str, key: str) -> None:
    """Measured with them, an untrained Pendulum scored -121, and -8 in the next evaluation."""

    def mine() -> gymnasium.Env:
        return gymnasium.wrappers.ClipAction(getattr(gymnasium.wrappers, wrapper)(gymnasium.make("Pendulum-v1")))

    line = rf"^env\.entry=mine holds Gymnasium's {wrapper}: other copies have other .* give {key}=true$"
    with pytest.raises(UserError, match=line):
        gym.make(gym.Config(2, entry="mine"), 0, "cpu", factory=mine)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", ["NormalizeObservation", "NormalizeReward"])
def test_statistics_are_refused_in_a_vector_environment_of_ones_own(name: str, inside: bool) -> None:
    """Rewards of Pendulum were measured as -19 before and as -7 after two iterations: by the statistics alone."""

    def one() -> gymnasium.Env:
        env = gymnasium.make("Pendulum-v1")
        return getattr(gymnasium.wrappers, name)(env) if inside else env

    def vector(n: int) -> gymnasium.vector.VectorEnv:
        env = gymnasium.vector.SyncVectorEnv([one] * n)
        return env if inside else getattr(gymnasium.wrappers.vector, name)(env)

    with pytest.raises(UserError, match=rf"^mine holds Gymnasium's {name}: other copies have other statistics"):
        ControlEnv(vector, 2, source="mine")


def test_what_draws_into_a_window_is_refused() -> None:
    """Each copy would draw each step of training: an iteration of 16 steps took 18 s."""

    class Window(gymnasium.Wrapper):
        render_mode = "human"

    def mine() -> gymnasium.Env:
        return Window(gymnasium.make("CartPole-v1"))

    line = r"^env\.entry=mine draws into a window \(render_mode=human\), and a run opens none: make it without"
    with pytest.raises(UserError, match=line):
        gym.make(gym.Config(2, entry="mine"), 0, "cpu", factory=mine)


def test_a_shape_in_a_list_is_one() -> None:
    assert one("ReshapeObservation", ReshapeObservation={"shape": [2, 2]}).reset(seed=0)[0].shape == (2, 2)


@pytest.mark.parametrize("name", list(wrapping.REFUSED))
def test_what_cannot_be_is_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match=f"env.wrappers={name} is not allowed"):
        one(name)
    assert name in gymnasium.wrappers.__all__


def test_what_goes_wrong_is_one_line(mine: str) -> None:
    for names, keywords, says in (
        (["FrameStackObservatio"], {}, "did you mean FrameStackObservation"),
        ([mine], {"Scaled": {"hight": 1}}, "cannot be made: .*unexpected keyword argument 'hight'"),
        ([mine.replace("Scaled", "nothing")], {}, "returned NoneType: it has to return an environment"),
        ([mine.replace("Scaled", "missing")], {}, "has no function or class 'missing'"),
        ([], {"X": {}}, "is for no wrapper of env.wrappers: name it in env.wrappers, too"),
    ):
        with pytest.raises(UserError, match=says):
            one(*names, **keywords)


def test_equal_bounds_are_not_rescaled() -> None:
    """Gymnasium divides by their difference, and played an action that is not a number."""

    class Half(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(np.float32([0, -1]), np.float32([0, 1]))
        action_space = gymnasium.spaces.Box(np.float32([-1, 0]), np.float32([1, 0]))

    names = {"RescaleAction": ("min_action", "max_action"), "RescaleObservation": ("min_obs", "max_obs")}
    for name, (low, high) in names.items():
        with pytest.raises(UserError, match=rf"^env\.wrappers={name} cannot rescale Box.* has equal bounds: give it"):
            wrapping.wrapped(Half(), [name], {name: {low: -2, high: 2}})


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named 'cv2', for {name}")

    monkeypatch.setattr(gymnasium.wrappers, "__getattr__", missing)
    monkeypatch.delattr(gymnasium.wrappers, "ResizeObservation", raising=False)
    with pytest.raises(UserError, match=r"env\.wrappers=ResizeObservation needs a package that is not installed"):
        one("ResizeObservation")


def test_a_run_in_wrappers_resumes_and_asks_for_trust(
    mine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    words = [f"env.wrappers={mine},TimeAwareObservation", "env.wrapper_kwargs.Scaled.by=3", "validation_episodes=2"]
    assert main([*SMALL, *words, "iterations=2", f"out={folder}"]) == 0
    capsys.readouterr()
    assert main([f"resume={folder}", "iterations=3"]) == 2
    assert f"env.wrappers={mine}; trust=true allows it" in capsys.readouterr().err
    assert main([f"resume={folder}", "iterations=3", "trust=true"]) == 0
    assert "warning" not in capsys.readouterr().err, "what was played came out again"


def test_the_first_screen_says_that_no_limit_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algo=ppo", "env=gym", "env.id=Blackjack-v1", "algo.horizon=16", "evaluation_episodes=2", "iterations=1"]
    for step_limit, says in (("0", True), ("50", False)):
        folder = tmp_path / step_limit
        assert main([*words, "validation_episodes=2", f"env.step_limit={step_limit}", f"out={folder}"]) == 0
        assert ("episodes: no step limit is known" in capsys.readouterr().out) is says


FRAMES = """
import gymnasium

class Skip(gymnasium.Wrapper):
    def step(self, action):
        total = 0.0
        for _ in range(4):
            seen, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            if terminated or truncated:
                break
        return seen, total, terminated, truncated, info
"""


@pytest.mark.parametrize("wrapper", ["MaxAndSkipObservation", "own"])
def test_episodes_that_are_cut_are_counted_where_a_wrapper_skips_frames(wrapper: str, tmp_path: Path) -> None:
    (tmp_path / "skip.py").write_text(FRAMES)
    name = f"{tmp_path / 'skip.py'}:Skip" if wrapper == "own" else wrapper
    keywords = {} if wrapper == "own" else {wrapper: {"skip": 4}}
    config = gym.Config(2, "MountainCar-v0", wrappers=(name,), wrapper_kwargs=keywords, step_limit=30)
    env = gym.make(config, 0, "cpu")
    assert env.longest == 8, "30 frames, four in a step"
    played = env.evaluate(Still(), episodes=3)
    assert played.length.tolist() == [8, 8, 8] and played.truncated.tolist() == [True] * 3


def test_an_episode_that_ends_in_its_last_step_is_not_called_cut() -> None:
    env = gym.make(gym.Config(1, "CartPole-v1", step_limit=9), 0, "cpu")
    found = env.evaluate(Still(), episodes=40)
    assert ((found.length == 9) & ~found.truncated).any() and found.truncated.any(), "both kinds are there"
    assert not (found.truncated & (found.length < 9)).any()


def test_an_inner_limit_is_known_by_the_policys_steps() -> None:
    skipped = gymnasium.wrappers.MaxAndSkipObservation(gymnasium.make("MountainCar-v0"), skip=4)
    assert wrapping.longest(skipped) == 50
    assert wrapping.longest(gymnasium.wrappers.TimeLimit(skipped, 20)) == 20
    assert wrapping.longest(gymnasium.make("Blackjack-v1")) is None


def test_a_limit_that_changes_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def limited(limit: int) -> gymnasium.Env:
        return gymnasium.wrappers.TimeLimit(gymnasium.make("MountainCar-v0"), limit)

    for own, given, told in ((20, 21, "by itself after 20 steps, so env.step_limit=21 changes nothing"), (20, 20, "")):
        env = gym.make(gym.Config(1, entry="<x>", step_limit=given), 0, "cpu", factory=partial(limited, own))
        assert told in (said := capsys.readouterr().err) and bool(said) is bool(told)
        assert env.evaluate(Still(), episodes=1).length.tolist() == [20]


class Still:
    def act(self, observation: torch.Tensor, greedy: bool = False) -> torch.Tensor:
        return torch.zeros(len(observation), dtype=torch.long)

    def record(self, batch: object) -> dict[str, torch.Tensor]:
        return {}
