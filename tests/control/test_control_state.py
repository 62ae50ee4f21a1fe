"""Evaluation leaves training alone, and a saved state resumes exactly."""

import io
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from support.probes import Chooses, Draws, control, make, same
from support.resuming import same as alike

from rlkit.api import UserError
from rlkit.meter import finished
from rlkit.settings import plugins

cartpole = plugins.load("envs", "cartpole")
gym = plugins.load("envs", "gym")
frozenlake = plugins.load("envs", "frozenlake")
gridworld = plugins.load("envs", "gridworld")


def test_fresh_episodes_leave_the_stream_alone():
    plain, mixed = make(cartpole, rows=2), make(cartpole, rows=2)
    policies = Draws(plain), Draws(mixed)
    for env, policy in zip((plain, mixed), policies, strict=True):
        env.rollout(policy, steps=11)
    mixed.rollout(Draws(mixed, seed=1), repeats=2)
    same(plain.rollout(policies[0], steps=30), mixed.rollout(policies[1], steps=30))


@pytest.mark.parametrize("greedy", [True, False])
def test_evaluation_leaves_training_untouched(greedy):
    plain, evaluated = make(cartpole, rows=3), make(cartpole, rows=3)
    policies = Draws(plain), Draws(evaluated)
    plain.rollout(policies[0], steps=17), evaluated.rollout(policies[1], steps=17)
    evaluated.evaluate(policies[1], 7, greedy=greedy)
    same(plain.rollout(policies[0], steps=40), evaluated.rollout(policies[1], steps=40))


def test_evaluation_depends_on_the_seed_and_the_split_only():
    env, policy = make(cartpole, rows=2), Chooses(lambda observation: (observation[:, 2] > 0).long())
    few = env.evaluate(policy, 5, "validation")
    env.rollout(policy, steps=50)
    many = env.evaluate(policy, 300, "validation")
    assert torch.equal(few.score, many.score[:5]) and torch.equal(many.score, many.length.double())
    assert len(many.score) == 300 and len(set(many.score.tolist())) > 5
    assert not torch.equal(few.score, env.evaluate(policy, 5, "test").score)
    assert not torch.equal(few.score, make(cartpole, rows=2, seed=1).evaluate(policy, 5).score)


ENVS = {
    "cartpole": lambda: make(cartpole, rows=3),
    "frozenlake": lambda: make(frozenlake, rows=3),
    "gridworld": lambda: make(gridworld, rows=3, slip=0.2),
    "gym-cartpole": lambda: make(gym, rows=3, id="CartPole-v1"),
    "gym-pendulum": lambda: make(gym, rows=2, id="Pendulum-v1", step_limit=30),
    "next-step": lambda: control(partial(gymnasium.make, "CartPole-v1"), limit=500, mode=AutoresetMode.NEXT_STEP),
    "same-step": lambda: control(partial(gymnasium.make, "CartPole-v1"), limit=500, mode=AutoresetMode.SAME_STEP),
}


@pytest.mark.parametrize("name", list(ENVS))
@pytest.mark.parametrize("before", [0, 1, 53])
def test_resuming_in_the_middle_of_episodes_is_bitwise_exact(name, before):
    env = ENVS[name]()
    policy = Draws(env)
    if before:
        env.rollout(policy, steps=before)
        env.rollout(policy, steps=before)
    file = io.BytesIO()
    torch.save({"env": env.state_dict(), "policy": policy.generator.get_state()}, file)
    expected = env.rollout(policy, steps=60)
    state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    resumed = ENVS[name]()
    resumed.load_state_dict(state["env"])
    policy.generator.set_state(state["policy"])
    same(resumed.rollout(policy, steps=60), expected)  # what it tells of its episodes included
    assert finished(expected)
    once_more = ENVS[name]()  # a state saved after resuming is as good
    once_more.load_state_dict(resumed.state_dict())
    generator = policy.generator.get_state()
    expected = env.rollout(policy, steps=20)
    for other in (resumed, once_more):
        policy.generator.set_state(generator)
        same(other.rollout(policy, steps=20), expected)


class Doubles(gymnasium.Env):
    """Pays what an action of double precision has beyond single precision."""

    observation_space, action_space = Box(-1, 1, (1,), np.float32), Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action[0] - np.float32(action[0])), False, False, {}


def test_what_is_played_of_an_action_is_what_a_resume_plays_again():
    rollout = control(Doubles).rollout(Chooses(lambda x: torch.full((len(x), 1), 0.1, dtype=torch.float64)), steps=9)
    assert not rollout["reward"].any()


def test_resuming_continues_the_starts_of_fresh_episodes():
    env = make(cartpole, rows=2)
    env.rollout(Draws(env), repeats=2)
    resumed = make(cartpole, rows=2)
    resumed.load_state_dict(env.state_dict())
    same(resumed.rollout(Draws(env), repeats=2), env.rollout(Draws(env), repeats=2))


def test_the_saved_actions_reach_back_only_to_the_oldest_episode_in_progress():
    env = make(cartpole, rows=4)
    policy = Draws(env)
    for _ in range(40):
        env.rollout(policy, steps=25)
    longest = max(env.state_dict()["ages"])
    assert len(env.state_dict()["actions"]) == longest < 200 and sum(map(len, env._history)) < longest + 25


def test_a_state_with_another_number_of_rows_is_refused():
    with pytest.raises(UserError, match="2 rows"):
        make(cartpole, rows=3).load_state_dict(make(cartpole, rows=2).state_dict())


@pytest.mark.parametrize("change", [lambda x: x.flatten()[:1], lambda x: x[:, :1], lambda x: x[..., None]])
def test_actions_that_are_not_those_of_the_rows_are_refused(change):
    env = make(cartpole, rows=2)
    env.rollout(Draws(env), steps=5)
    state = env.state_dict()
    state["actions"] = change(state["actions"])
    with pytest.raises(ValueError, match=r"actions of a step have the shape .*, not \(2,\)"):
        make(cartpole, rows=2).load_state_dict(state)


@pytest.mark.parametrize("key", ["ages", "length", "return", "seeds"])
def test_a_state_that_is_not_of_as_many_rows_throughout_is_refused(key):
    env = make(cartpole, rows=2)
    env.rollout(Draws(env), steps=5)
    state = env.state_dict()
    state[key] = state[key][:1]
    with pytest.raises(ValueError, match=f"'{key}' is of 1 rows, not 2"):
        make(cartpole, rows=2).load_state_dict(state)


class Counts(gymnasium.Env):
    """Begins where its resets so far have brought it, whatever the seed."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        return np.array([self.resets], dtype=np.float32), {}

    def step(self, action):
        return np.array([0.0], dtype=np.float32), 1.0, True, False, {}


@pytest.mark.parametrize("repeats", [1, 3])
def test_whole_episodes_of_an_environment_that_its_seed_does_not_decide_come_back_with_a_line(repeats, capsys):
    def played(rollouts):
        env = gym.make(gym.Config(rows=2, entry="counts"), 0, "cpu", factory=Counts)
        for _ in range(rollouts):
            env.rollout(Draws(env), repeats=repeats)
        return env

    played(0).load_state_dict(played(3).state_dict())
    assert capsys.readouterr().err.count("a reset with the seed that it had begins elsewhere") == 1


@pytest.mark.parametrize("name", ["cartpole", "frozenlake", "gym-cartpole", "next-step"])
@pytest.mark.parametrize("repeats", [1, 3])
def test_whole_episodes_of_others_come_back_without_a_word(name, repeats, capsys):
    env, again = ENVS[name](), ENVS[name]()
    policies = Draws(env), Draws(again)
    for _ in range(3):
        env.rollout(policies[0], repeats=repeats), again.rollout(policies[1], repeats=repeats)
    third = ENVS[name]()
    third.load_state_dict(env.state_dict())
    assert not capsys.readouterr().err
    same(again.rollout(policies[1], repeats=repeats), third.rollout(policies[0], repeats=repeats))


class Hides(Counts):
    """Forgets in its first step where it began."""

    def step(self, action):
        return np.array([0.0], dtype=np.float32), 1.0, self.np_random.random() < 0.2, False, {}


def test_a_stream_that_no_longer_shows_where_its_episodes_began_comes_back_with_a_line(capsys):
    def played(env, rollouts):
        for _ in range(rollouts):
            env.rollout(Draws(env), steps=5)
        return env

    def made():
        return gym.make(gym.Config(rows=2, entry="hides"), 0, "cpu", factory=Hides)

    env = played(made(), 3)
    while (env.state_dict()["ages"] == np.zeros(2)).any():  # in the middle of an episode there is nothing to be seen
        played(env, 1)
    made().load_state_dict(env.state_dict())
    assert capsys.readouterr().err.count("a reset with the seed that it had begins elsewhere") == 1


class Grows(gymnasium.Env):
    """Shows one state only; an episode has three steps, and each pays as many as there were resets."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.steps = self.resets + 1, 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, dtype=np.float32), 0.1 * self.resets, self.steps == 3, False, {}


@pytest.mark.parametrize(("mode", "steps", "told"), [("DISABLED", 2, 0), ("DISABLED", 11, 1), ("NEXT_STEP", 11, 0)])
def test_rewards_that_depend_on_earlier_episodes_come_back_with_a_line(mode, steps, told, capsys):
    """In the first episode nothing came before; an environment that resets itself is replayed from there."""

    def made():
        return control(Grows, rows=2, mode=AutoresetMode[mode])

    env = made()
    for _ in range(steps):
        env.rollout(Draws(env), steps=1)
    state = env.state_dict()
    made().load_state_dict(state)
    assert capsys.readouterr().err.count("its episodes in progress cannot be repeated exactly") == told
    state = {key: x for key, x in state.items() if key not in ("earned", "past")}  # as 0.5.0 wrote it
    made().load_state_dict(state)
    assert not capsys.readouterr().err


class Late(Grows):
    """Pays at the end alone: what an episode in progress has earned says nothing."""

    def step(self, action):
        observation, reward, ended, cut, info = super().step(action)
        return observation, reward if ended else 0.0, ended, cut, info


class Fair(Late):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, float(reward > 0) * (1 + int(action)), *rest


@pytest.mark.parametrize(("made", "told"), [(Late, 1), (Fair, 0)])
@pytest.mark.parametrize("steps", [1, 5])
def test_a_reward_at_the_end_that_depends_on_earlier_episodes_comes_back_with_a_line(made, told, steps, capsys):
    env = control(made, rows=2, mode=AutoresetMode.DISABLED)
    for _ in range(20):
        env.rollout(Draws(env), steps=steps)
    state = env.state_dict()
    assert not state["earned"].any() and state["past"]["actions"].shape == (3, 2)
    again = control(made, rows=2, mode=AutoresetMode.DISABLED)
    again.load_state_dict(state)
    assert capsys.readouterr().err.count("earlier episode earns something else when it is played again, so") == told
    assert alike(env.state_dict()["past"], again.state_dict()["past"])
    del state["past"]  # as 0.5.0 wrote it
    control(made, rows=2, mode=AutoresetMode.DISABLED).load_state_dict(state)
    assert not capsys.readouterr().err
