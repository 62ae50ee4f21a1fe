"""Small policies and environments that make one property visible each."""

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from rlkit import seeding
from rlkit.control import ControlEnv


class Chooses:
    """A policy from a function of the observations."""

    def __init__(self, choose):
        self.choose = choose

    def act(self, observation, greedy=False):
        return self.choose(observation)

    def record(self, rollout):
        return {"seen": rollout["observation"].clone()}


class Draws(Chooses):
    """Random actions from a generator of its own: discrete, or Gaussian of standard deviation 3."""

    def __init__(self, env, seed=0):
        self.space, self.generator = env.action_space, seeding.generator(seed, "action")

    def act(self, observation, greedy=False):
        n = len(observation)
        if isinstance(self.space, Discrete):
            return torch.randint(int(self.space.n), (n,), generator=self.generator)
        return 3 * torch.randn(n, int(np.prod(self.space.shape)), generator=self.generator)


class Ring(gymnasium.Env):
    """Four states in a ring, reward 1 for every step, no end: V = 1 / (1 - γ)."""

    observation_space, action_space = Discrete(4), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return 0, {}

    def step(self, action):
        self.at = (self.at + 1) % 4
        return self.at, 1.0, False, False, {}


class Corridor(gymnasium.Env):
    """Cells 0 to 3 and an end at 3. Odd episodes start at 1, even ones at 0, whatever the seed."""

    observation_space, action_space = Box(0, 3, (1,)), Discrete(2)
    episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.at = self.episode % 2
        return np.array([self.at], dtype=np.float32), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        return np.array([self.at], dtype=np.float32), float(self.at), self.at == 3, False, {}


class Echo(gymnasium.Env):
    """The reward is the action that arrived."""

    observation_space, action_space = Box(-1, 1, (2, 2)), Box(-1, 1, (1, 1))

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 2), dtype=np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.ones((2, 2), dtype=np.float32), float(action[0, 0]), False, False, {}


def control(one, rows=2, seed=0, limit=6, mode=AutoresetMode.DISABLED, vector=SyncVectorEnv):
    return ControlEnv(lambda n: vector([lambda: TimeLimit(one(), limit)] * n, autoreset_mode=mode), rows, seed)


def make(plugin, seed=0, **config):
    return plugin.make(plugin.Config(**config), seed, "cpu")


def same(a, b):
    assert set(a.keys()) == set(b.keys())
    for key in a.keys():
        assert torch.equal(a[key], b[key]), key


def play_both(vector, name, seeds, choose, episodes, limit=None, follow=False):
    """Play the same actions in `vector(n)` and in Gymnasium's own for so many episodes each; returns their lengths.

    `follow` puts Gymnasium's state where ours is after each step: in chaos the last digit of a cosine grows to
    everything, so that there only single steps can be compared.
    """
    ours, theirs = vector(len(seeds)), [gymnasium.make(name, max_episode_steps=limit) for _ in seeds]
    assert ours.single_observation_space == theirs[0].observation_space
    assert ours.single_action_space == theirs[0].action_space
    now, _ = ours.reset(seed=list(seeds))
    starts = [env.reset(seed=seed)[0] for env, seed in zip(theirs, seeds, strict=True)]
    np.testing.assert_allclose(now, starts, rtol=1e-7, atol=1e-7)
    seeds, lengths, steps = list(seeds), [[] for _ in seeds], np.zeros(len(seeds), dtype=int)
    while min(map(len, lengths)) < episodes:
        actions = choose(now)
        now, reward, terminated, truncated, _ = ours.step(actions)
        steps += 1
        for row, env in enumerate(theirs):
            observation, r, over, cut, _ = env.step(actions[row])
            np.testing.assert_allclose(now[row], observation, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(reward[row], r, rtol=1e-6, atol=1e-6)
            assert (terminated[row], truncated[row]) == (over, cut)
            if follow:
                env.unwrapped.state = ours.state[:, row].copy()
        done = terminated | truncated
        if done.any():
            for row in np.flatnonzero(done):
                seeds[row] += 1000
                lengths[row].append(int(steps[row]))
                steps[row] = 0
            now, _ = ours.reset(seed=seeds, options={"reset_mask": done})
            for row in np.flatnonzero(done):
                np.testing.assert_allclose(now[row], theirs[row].reset(seed=seeds[row])[0], rtol=1e-7, atol=1e-7)
    return [length for of_row in lengths for length in of_row]
