"""Atari: what is learned of a game, what is measured, and what the emulator is given."""

import os
import sys
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes import algorithm

from rlkit.api import UserError
from rlkit.control.vector import LIFE
from rlkit.policies import Network
from rlkit.settings import plugins

atari = plugins.load("envs", "atari")
FLAT = Network(hidden=(4,), encoder="flat")


def made(**keys: Any) -> Any:
    return atari.make(atari.Config(**{"threads": 1, "rows": 2, **keys}), 0, torch.device("cpu"))


@pytest.mark.slow
def test_a_lost_life_ends_what_is_learned_and_not_what_is_measured() -> None:
    env = made(game="space_invaders", step_limit=400)
    policy = algorithm("ppo", env, FLAT).policy
    rollout = env.rollout(policy, steps=500)
    assert rollout["observation"].shape == (2, 500, 4 * 84 * 84) and rollout["observation"].dtype == torch.uint8
    assert set(rollout["reward"].unique().tolist()) == {0.0, 1.0}  # an invader is worth 5 points and more
    ended = rollout["episode_length"] > 0
    assert ended.sum() >= 2 and rollout["episode_return"][ended].min() >= 5
    lost = rollout["done"] & ~ended
    assert lost.any() and rollout["terminated"][lost].all() and LIFE not in rollout.keys()
    assert (rollout["score"] >= rollout["episode_return"].sum(-1)).all()
    greedy = env.evaluate(policy, episodes=2)
    assert greedy.score.shape == (2,) and (greedy.score % 5 == 0).all()


@pytest.mark.slow
def test_without_them_what_is_learned_is_the_game() -> None:
    env = made(game="space_invaders", step_limit=100, life_ends=False, clip_reward=False)
    rollout = env.rollout(algorithm("ppo", env, FLAT).policy, steps=120)
    assert rollout["reward"].max() >= 5
    assert torch.equal(rollout["done"], rollout["episode_length"] > 0)


@pytest.mark.slow
def test_fire_is_pressed_after_each_lost_life() -> None:
    games, given = atari.Games(atari.Config(threads=1), 2), []
    games.reset(seed=[0, 1])
    step = games.games.step
    games.games.step = lambda actions: given.append(actions) or step(actions)
    lost = [games.step(np.zeros(2, dtype=np.int64))[4][LIFE] for _ in range(60)]
    assert np.array_equal(np.stack(given[1:]) == games.fire, np.stack(lost[:-1])) and np.any(lost)


@pytest.mark.slow
def test_the_step_limit_shows_what_a_longer_game_would_show() -> None:
    short, long = (atari.Games(atari.Config(threads=1, step_limit=limit), 2) for limit in (12, 100))
    for games in (short, long):
        games.reset(seed=[0, 1])
    for step in range(1, 13):
        action = np.array([step % 4, (step + 1) % 4])
        seen, _, terminated, truncated, _ = short.step(action)
        assert np.array_equal(seen, long.step(action)[0]) and not terminated.any()
        assert truncated.tolist() == [step == 12] * 2


@pytest.mark.slow
def test_each_copy_begins_where_its_seed_says() -> None:
    games = atari.Games(atari.Config(threads=1), 2)
    first = games.reset(seed=[7, 8])[0].copy()
    for _ in range(5):
        games.step(np.ones(2, dtype=np.int64))
    again = games.reset(seed=[9, 8], options={"reset_mask": np.array([False, True])})[0]
    assert np.array_equal(again[1], first[1]) and not np.array_equal(again[0], first[0])
    assert games.render()[0].shape == (336, 336, 3)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted as on Linux")
def test_the_emulator_has_no_more_threads_than_copies() -> None:
    before = len(os.listdir("/proc/self/task"))
    games = atari.Games(atari.Config(threads=500), 2)
    games.reset(seed=[0, 1])
    assert len(os.listdir("/proc/self/task")) <= before + 4


def test_another_name_is_no_game(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^env\.game=brakeout is not a game of ale-py: give breakout"):
        made(game="brakeout")
    with pytest.raises(UserError, match=r"^env\.game=combat takes two players: give another one, such as pong$"):
        made(game="combat")
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    with pytest.raises(UserError, match=r"env=atari needs the package ale-py: pip install"):
        made()


def test_copies_without_room_are_refused_before_they_are_made() -> None:
    with pytest.raises(UserError, match=r"^env\.rows=1000000 needs .* GB, .* GB are free: give fewer$"):
        made(rows=10**6)
