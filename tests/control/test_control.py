"""What a rollout holds: true successors, honest masks, shared starts, and the chosen actions."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode
from support.parrot import Parrot
from support.probes import Chooses, Corridor, Draws, Echo, Ring, control, make, same

from rlkit import seeding
from rlkit.api import UserError
from rlkit.meter import finished
from rlkit.settings import plugins

cartpole = plugins.load("envs", "cartpole")
MODES = list(AutoresetMode)


@pytest.mark.parametrize("mode", MODES)
def test_a_truncated_step_is_done_but_not_terminated_and_its_successor_is_the_true_one(mode):
    rollout = control(Ring, mode=mode).rollout(Chooses(torch.zeros_like), steps=18)
    assert not rollout["terminated"].any()
    cut = rollout["done"]
    assert cut.sum(-1).tolist() == ([2, 2] if mode is AutoresetMode.NEXT_STEP else [3, 3])
    acted = rollout["mask"]
    expected = (rollout["observation"] + 1) % 4
    assert torch.equal(rollout["next_observation"][acted], expected[acted])  # 6 steps end in state 2, not in 0
    assert (rollout["next_observation"][cut] == 2).all()
    assert rollout["score"].tolist() == acted.sum(-1).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_all_autoreset_modes_give_the_same_training_data(mode):
    choose = Chooses(lambda observation: torch.ones(len(observation), dtype=torch.long))
    turn = Chooses(lambda observation: (observation[:, 0] > 0).long())  # from 0 it stays at the wall and is cut
    for policy in (choose, turn):
        data = []
        for each in (AutoresetMode.DISABLED, mode):
            env = control(Corridor, mode=each)
            parts = [env.rollout(policy, steps=7) for _ in range(6)]
            keys = ("observation", "action", "reward", "terminated", "done", "next_observation")
            data.append({key: torch.cat([part[key][0][part["mask"][0]] for part in parts]) for key in keys})
        ours, theirs = data
        assert len(theirs["done"]) >= 28 and theirs["terminated"].any()
        assert (theirs["done"] & ~theirs["terminated"]).any() == (policy is turn)
        for key, values in theirs.items():
            assert torch.equal(values, ours[key][: len(values)]), key


def test_the_step_that_only_resets_is_masked_and_earns_nothing():
    env = control(Ring, rows=1, mode=AutoresetMode.NEXT_STEP)
    rollout = env.rollout(Chooses(torch.zeros_like), steps=15)
    assert (~rollout["mask"][0]).nonzero()[:, 0].tolist() == [6, 13]
    assert rollout["reward"][~rollout["mask"]].tolist() == [0.0, 0.0] and rollout["score"].item() == 13
    assert finished(rollout) == [(6.0, 6), (6.0, 6)]


def test_a_policy_that_does_not_act_is_refused():
    env = control(Ring)
    for ask in (env.rollout, env.evaluate, env.check):
        with pytest.raises(UserError, match="a Parrot does not act, so it cannot play control problems"):
            ask(Parrot())


def test_play_continues_where_it_stopped():
    whole, parts = make(cartpole, rows=3), make(cartpole, rows=3)
    policies = Draws(whole), Draws(parts)
    together = whole.rollout(policies[0], steps=90)
    pieces = [parts.rollout(policies[1], steps=steps) for steps in (40, 1, 49)]
    keys = ("observation", "next_observation", "action", "reward", "terminated", "done", "mask", "seen")
    for key in (*keys, "episode_return", "episode_length"):
        assert torch.equal(together[key], torch.cat([piece[key] for piece in pieces], 1)), key
    ended = [episode for piece in pieces for episode in finished(piece)]
    assert sorted(ended) == sorted(finished(together)) and len(ended) > 5
    assert all(score == length for score, length in ended)


def test_each_episode_of_a_row_starts_from_its_own_seed():
    env = make(cartpole, rows=2, seed=5)
    rollout = env.rollout(Draws(env), steps=200)
    theirs = gymnasium.make("CartPole-v1")
    for row in range(2):
        starts = [0, *(rollout["done"][row, :-1].nonzero()[:, 0] + 1).tolist()]
        assert len(starts) > 4
        for episode, t in enumerate(starts):
            first, _ = theirs.reset(seed=seeding.derive(5, "reset", row, episode) % 2**31)
            assert torch.equal(rollout["observation"][row, t], torch.from_numpy(first))


def test_attempts_from_one_start_share_the_reset_state_and_starts_differ():
    env = make(cartpole, rows=3)
    policy = Draws(env)
    first, second = env.rollout(policy, repeats=4), env.rollout(policy, repeats=4)
    for rollout in (first, second):
        starts = rollout["observation"][:, :, 0]
        assert starts.shape == (3, 4, 4) and torch.equal(starts, starts[:, :1].expand_as(starts))
        assert len(starts[:, 0].unique(dim=0)) == 3
    assert not torch.equal(first["observation"][:, 0, 0], second["observation"][:, 0, 0])
    assert not torch.equal(first["action"][:, 0], first["action"][:, 1])
    again = make(cartpole, rows=3).rollout(Draws(env), repeats=4)
    same(again, first)


@pytest.mark.parametrize("mode", MODES)
def test_after_its_end_an_attempt_is_masked_and_contributes_nothing(mode):
    env = control(partial(gymnasium.make, "CartPole-v1"), rows=2, limit=500, mode=mode)
    rollout = env.rollout(Draws(env), repeats=3)
    mask, length = rollout["mask"], rollout["mask"].sum(-1)
    assert rollout.batch_size == (2, 3) and length.max() == mask.shape[-1] and length.min() < length.max()
    assert torch.equal(mask, torch.arange(mask.shape[-1]) < length.unsqueeze(-1))
    assert torch.equal(rollout["reward"], mask.float()) and torch.equal(rollout["score"], length.float())
    last = torch.arange(mask.shape[-1]) == length.unsqueeze(-1) - 1
    assert torch.equal(rollout["done"], last) and torch.equal(rollout["terminated"], last)
    assert sorted(finished(rollout)) == sorted((float(x), int(x)) for x in length.flatten())


def test_an_attempt_that_is_cut_short_is_done_and_not_terminated():
    env = control(Ring, limit=100)
    rollout = env.rollout(Chooses(torch.zeros_like), steps=5, repeats=2)
    assert rollout["done"].sum(-1).tolist() == [[1, 1], [1, 1]] and rollout["done"][..., -1].all()
    assert not rollout["terminated"].any() and (rollout["score"] == 5).all()


def test_the_environment_gets_the_clipped_action_and_the_batch_keeps_the_chosen_one():
    env = control(Echo, rows=2)
    rollout = env.rollout(Chooses(lambda observation: torch.tensor([[3.0], [-0.5]])), steps=4)
    assert rollout["action"][:, :, 0].tolist() == [[3.0] * 4, [-0.5] * 4]
    assert rollout["reward"].tolist() == [[1.0] * 4, [-0.5] * 4]
    assert rollout["observation"].shape == (2, 4, 4)


def test_discrete_spaces_that_do_not_start_at_zero_are_counted_from_zero():
    class Shifted(Ring):
        observation_space, action_space = Discrete(4, start=10), Discrete(2, start=5)

        def reset(self, *, seed=None, options=None):
            return super().reset()[0] + 10, {}

        def step(self, action):
            assert action == 6
            return super().step(action)[0] + 10, float(action), False, False, {}

    rollout = control(Shifted).rollout(Chooses(torch.ones_like), steps=3)
    assert rollout["observation"][0].tolist() == [0, 1, 2] and rollout["action"][0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("broken", ["next_observation", "reward"])
def test_a_number_that_is_not_finite_stops_the_run_and_is_named(broken):
    class Broken(Corridor):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return (
                (observation * np.nan, reward, *rest) if broken == "next_observation" else (observation, np.nan, *rest)
            )

    with pytest.raises(FloatingPointError, match=broken):
        control(Broken).rollout(Chooses(lambda o: torch.zeros(len(o), dtype=torch.long)), steps=1)
