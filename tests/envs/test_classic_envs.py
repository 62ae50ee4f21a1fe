"""Acrobot, MountainCar and Pendulum in numpy are Gymnasium's, step by step; LunarLander is Gymnasium's itself."""

import importlib.util
import io
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from support.probes import Chooses, Draws, make, play_both, same

from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.meter import finished
from rlkit.settings import plugins

IDS = {
    "acrobot": "Acrobot-v1",
    "mountaincar": "MountainCar-v0",
    "pendulum": "Pendulum-v1",
    "lunarlander": "LunarLander-v3",
}
PLUGINS = {name: plugins.load("envs", name) for name in IDS}
CLASSES = {
    "acrobot": PLUGINS["acrobot"].Acrobot,
    "mountaincar": PLUGINS["mountaincar"].MountainCar,
    "pendulum": PLUGINS["pendulum"].Pendulum,
}
box2d = pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="needs Box2D")
ALL = ["acrobot", "mountaincar", "pendulum", pytest.param("lunarlander", marks=box2d)]


def random_actions(space, seed):
    """Uniform over the actions, or over a box half as wide again as the one that is allowed."""
    rng = np.random.default_rng(seed)
    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda now: rng.integers(0, space.n, len(now))
    return lambda now: rng.uniform(1.5 * space.low, 1.5 * space.high, (len(now), *space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", list(CLASSES))
@pytest.mark.slow
def test_random_play_is_gymnasiums_over_seeds_and_episodes(name):
    choose = random_actions(CLASSES[name](1).single_action_space, 0)
    lengths = play_both(CLASSES[name], IDS[name], range(6), choose, episodes=2, follow=name == "acrobot")
    assert max(lengths) == gymnasium.spec(IDS[name]).max_episode_steps


@pytest.mark.slow
def test_acrobot_driven_with_its_swing_is_gymnasiums_up_to_the_goal():
    with_the_swing = lambda now: (now[:, 5] > 0) * 2  # noqa: E731
    lengths = play_both(CLASSES["acrobot"], "Acrobot-v1", range(6), with_the_swing, episodes=3, follow=True)
    assert max(lengths) < 500


def test_acrobots_whole_episodes_are_gymnasiums_as_long_as_a_last_digit_stays_one():
    choose = random_actions(CLASSES["acrobot"](1).single_action_space, 1)
    vector = partial(CLASSES["acrobot"], step_limit=40)
    assert play_both(vector, "Acrobot-v1", range(4), choose, episodes=3, limit=40) == [40] * 12


@pytest.mark.slow
def test_a_mountain_car_pushed_with_its_motion_is_gymnasiums_up_to_the_flag():
    lengths = play_both(
        CLASSES["mountaincar"], "MountainCar-v0", range(6), lambda now: (now[:, 1] >= 0) * 2, episodes=3
    )
    assert max(lengths) < 200


@pytest.mark.slow
def test_a_mountain_car_is_stopped_by_the_left_wall_as_gymnasiums():
    hits = []

    def left_then_along(now):
        hits.extend(now[now[:, 0] == np.float32(-1.2), 1].tolist())
        return np.where((now[:, 1] > 0) & (now[:, 0] < -0.4), 2, 0)

    play_both(CLASSES["mountaincar"], "MountainCar-v0", range(6), left_then_along, episodes=2)
    assert hits and set(hits) == {0.0}


@pytest.mark.parametrize("name", list(CLASSES))
def test_fast_states_are_wrapped_and_bounded_as_gymnasiums(name):
    ours, theirs = CLASSES[name](64), gymnasium.make(IDS[name])
    theirs.reset(seed=0)
    rng = np.random.default_rng(3)
    reach = {"acrobot": [3.1, 3.1, 12.5, 28.2], "mountaincar": [0.6, 0.07], "pendulum": [9.0, 8.0]}[name]
    ours.state = rng.uniform(-1, 1, (len(reach), 64)) * np.array(reach)[:, None]
    before = ours.state.copy()
    actions = random_actions(ours.single_action_space, 4)(range(64))
    observation, reward, terminated, *_ = ours.step(actions)
    for row in range(64):
        theirs.unwrapped.state = before[:, row]
        expected, r, over, *_ = theirs.unwrapped.step(actions[row])
        np.testing.assert_allclose(observation[row], expected, rtol=1e-6, atol=2e-6)
        np.testing.assert_allclose(reward[row], r, rtol=1e-6)
        assert terminated[row] == over
        np.testing.assert_allclose(ours.state[:, row], theirs.unwrapped.state, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", list(CLASSES))
def test_a_reset_leaves_the_other_rows_alone(name):
    env = CLASSES[name](3)
    env.reset(seed=[1, 2, 3])
    before, *_ = env.step(random_actions(env.single_action_space, 0)(range(3)))
    after, _ = env.reset(seed=[9, 9, 9], options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    np.testing.assert_allclose(after[1], gymnasium.make(IDS[name]).reset(seed=9)[0], rtol=1e-6, atol=1e-7)
    assert env.steps.tolist() == [1, 0, 1]
    assert before is not after and not np.shares_memory(before, after)


@pytest.mark.parametrize("name", ALL)
def test_the_step_limit_of_the_plug_in_truncates(name):
    env = make(PLUGINS[name], rows=2, step_limit=7)
    rollout = env.rollout(Draws(env), repeats=2)
    assert rollout["done"][..., -1].all() and rollout["done"].sum() == 4 and rollout["reward"].shape == (2, 2, 7)
    assert not rollout["terminated"].any()


@pytest.mark.parametrize("name", list(IDS))
def test_the_default_limit_is_gymnasiums(name):
    assert PLUGINS[name].Config().step_limit == gymnasium.spec(IDS[name]).max_episode_steps


@pytest.mark.parametrize("name", ALL)
def test_repeats_of_one_start_share_the_reset_state(name):
    env = make(PLUGINS[name], rows=3)
    first = env.rollout(Draws(env), steps=5, repeats=4)["observation"][:, :, 0]
    assert torch.equal(first, first[:, :1].expand_as(first))
    assert len(first[:, 0].unique(dim=0)) == 3
    assert not torch.equal(first, env.rollout(Draws(env), steps=5, repeats=4)["observation"][:, :, 0])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("before", [1, 130])
def test_resuming_in_the_middle_of_episodes_is_bitwise_exact(name, before):
    env = make(PLUGINS[name], rows=3)
    policy = Draws(env)
    for _ in range(2):
        env.rollout(policy, steps=before)
    file = io.BytesIO()
    torch.save({"env": env.state_dict(), "policy": policy.generator.get_state()}, file)
    expected = env.rollout(policy, steps=150)
    state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    resumed = make(PLUGINS[name], rows=3)
    resumed.load_state_dict(state["env"])
    policy.generator.set_state(state["policy"])
    same(resumed.rollout(policy, steps=150), expected)
    assert before == 1 or name == "acrobot" or finished(expected)


@pytest.mark.parametrize("name", list(CLASSES))
def test_a_rollout_is_that_of_gymnasiums_own_by_its_id(name):
    ours, theirs = make(PLUGINS[name], rows=4), make(plugins.load("envs", "gym"), rows=4, id=IDS[name])
    a, b = ours.rollout(Draws(ours), steps=45), theirs.rollout(Draws(theirs), steps=45)
    for key in a.keys():
        torch.testing.assert_close(a[key], b[key], rtol=1e-6, atol=1e-6)


@box2d
@pytest.mark.parametrize("continuous", [False, True])
def test_a_lunar_lander_replayed_from_its_reset_seed_is_bitwise_the_same(continuous):
    def play(seeds):
        env = gymnasium.make("LunarLander-v3", continuous=continuous)
        for seed in seeds:  # the last one counts: what was played before it must leave no trace
            env.action_space.seed(seed)
            now, _ = env.reset(seed=seed)
            track, over = [now], False
            while not over:
                now, reward, terminated, truncated, _ = env.step(env.action_space.sample())
                over = terminated or truncated
                track.append(np.append(now.astype(np.float64), reward))
        return np.concatenate(track)

    for seed in range(5):
        np.testing.assert_array_equal(play([seed]), play([seed + 100, seed + 200, seed]))


@box2d
def test_a_continuous_lander_takes_two_throttles_and_a_discrete_one_four_actions():
    assert make(PLUGINS["lunarlander"]).action_space == gymnasium.spaces.Discrete(4)
    env = make(PLUGINS["lunarlander"], rows=2, continuous=True)
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (2,)) and env.observation_space.shape == (8,)
    off, on = ([-1.0, 0.0], [1.0, 0.0])
    speed = {}
    for name, throttle in (("off", off), ("on", on)):
        always = Chooses(lambda observation, u=throttle: torch.tensor([u]).expand(len(observation), 2))
        speed[name] = env.rollout(always, steps=20, repeats=2)["observation"][..., -1, 3]
    assert (speed["on"] > speed["off"] + 0.2).all()  # upwards, from the same starts


def test_each_key_of_a_lander_arrives_where_it_belongs(monkeypatch):
    given = []
    monkeypatch.setattr(PLUGINS["lunarlander"].gym, "make", lambda config, *rest: given.append(config))
    make(PLUGINS["lunarlander"], rows=3, continuous=True, step_limit=50, luck="own")
    found = {"rows": 3, "id": "LunarLander-v3", "kwargs": {"continuous": True}, "step_limit": 50, "luck": "own"}
    assert {key: getattr(given[0], key) for key in found} == found and not given[0].entry


def test_a_lander_without_box2d_is_answered_with_the_remedy(monkeypatch):
    def missing(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(UserError, match=r"pip install 'gymnasium\[box2d\]'"):
        make(PLUGINS["lunarlander"])


def test_a_pendulums_torque_is_one_number_in_a_box():
    env = make(PLUGINS["pendulum"])
    assert isinstance(env, ControlEnv) and env.action_space == gymnasium.spaces.Box(-2, 2, (1,))
    assert env.rollout(Draws(env), steps=3)["action"].shape == (8, 3, 1)
