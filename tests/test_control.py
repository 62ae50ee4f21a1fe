"""What a rollout holds: true successors, honest masks, shared starts, and a state that resumes exactly."""

import io
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from rlkit import plugins, seeding
from rlkit.api import UserError
from rlkit.control import ControlEnv

cartpole, gym = plugins.load("envs", "cartpole"), plugins.load("envs", "gym")
frozenlake, gridworld = plugins.load("envs", "frozenlake"), plugins.load("envs", "gridworld")
MODES = list(AutoresetMode)


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
    for key in a.keys():  # noqa: SIM118 (a TensorDict iterates over rows)
        assert torch.equal(a[key], b[key]), key


@pytest.mark.parametrize("mode", MODES)
def test_a_truncated_step_is_done_but_not_terminated_and_its_successor_is_the_true_one(mode):
    rollout = control(Ring, mode=mode).rollout(Chooses(torch.zeros_like), steps=20)
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
    assert env.finished == [(6.0, 6), (6.0, 6)]


def test_play_continues_where_it_stopped():
    whole, parts = make(cartpole, rows=3), make(cartpole, rows=3)
    policies = Draws(whole), Draws(parts)
    together = whole.rollout(policies[0], steps=90)
    finished, pieces = [], []
    for steps in (40, 1, 49):
        pieces.append(parts.rollout(policies[1], steps=steps))
        finished += parts.finished
    for key in ("observation", "next_observation", "action", "reward", "terminated", "done", "mask", "seen"):
        assert torch.equal(together[key], torch.cat([piece[key] for piece in pieces], 1)), key
    assert sorted(finished) == sorted(whole.finished) and len(finished) > 5
    assert all(score == length for score, length in finished)


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
    assert sorted(env.finished) == sorted((float(x), int(x)) for x in length.flatten())


def test_an_attempt_that_is_cut_short_is_done_and_not_terminated():
    env = control(Ring, limit=100)
    rollout = env.rollout(Chooses(torch.zeros_like), steps=5, repeats=2)
    assert rollout["done"].sum(-1).tolist() == [[1, 1], [1, 1]] and rollout["done"][..., -1].all()
    assert not rollout["terminated"].any() and (rollout["score"] == 5).all()


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


def test_a_table_of_actions_can_be_evaluated():
    env = make(gridworld, start=(0, 0))
    table = torch.full((64,), 2).index_fill(0, torch.arange(7, 64, 8), 1)  # right, then down along the wall
    scores = env.evaluate(table, 4)
    assert scores.score.tolist() == [1.0] * 4 and scores.length.tolist() == [14] * 4


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
    expected, finished = env.rollout(policy, steps=60), env.finished
    state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    resumed = ENVS[name]()
    resumed.load_state_dict(state["env"])
    policy.generator.set_state(state["policy"])
    same(resumed.rollout(policy, steps=60), expected)
    assert resumed.finished == finished
    once_more = ENVS[name]()  # a state saved after resuming is as good
    once_more.load_state_dict(resumed.state_dict())
    generator = policy.generator.get_state()
    expected = env.rollout(policy, steps=20)
    for other in (resumed, once_more):
        policy.generator.set_state(generator)
        same(other.rollout(policy, steps=20), expected)


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


def test_worker_processes_give_the_same_rollout():
    one = partial(gymnasium.make, "CartPole-v1")
    envs = [control(one, limit=20, vector=vector) for vector in (SyncVectorEnv, AsyncVectorEnv)]
    results = [env.rollout(Draws(env), steps=30) for env in envs]
    envs[1].close()
    same(*results)


def test_a_vector_env_with_a_single_generator_plays_but_cannot_share_starts():
    env = ControlEnv(lambda n: gymnasium.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point"), rows=3)
    rollout = env.rollout(Draws(env), steps=60)
    assert torch.equal(rollout["reward"], rollout["mask"].float()) and (~rollout["mask"]).any()
    with pytest.raises(UserError, match="repeats=1"):
        env.rollout(Draws(env), repeats=2)


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


def test_an_unknown_id_is_answered_with_the_nearest_ones():
    with pytest.raises(UserError, match=r"env\.id=acrobot.*Acrobot-v1"):
        make(gym, id="acrobot")
    with pytest.raises(UserError, match="CartPole-v1"):
        make(gym, id="CartPole-v7")


def test_spaces_and_arguments_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="observation space Tuple"):
        make(gym, id="Blackjack-v1")
    with pytest.raises(UserError, match="gravitas"):
        make(gym, id="CartPole-v1", kwargs={"gravitas": 1})


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    def missing(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(UserError, match=r"pip install 'rlkit\[box2d\]'"):
        make(gym, id="LunarLander-v3")


def test_gymnasiums_cartpole_and_ours_give_the_same_rollout():
    ours, theirs = make(cartpole, rows=4), make(gym, rows=4, id="CartPole-v1")
    for repeats, steps in ((1, 120), (3, None)):
        a = ours.rollout(Draws(ours), steps, repeats)
        b = theirs.rollout(Draws(theirs), steps, repeats)
        acted = a["mask"]
        assert torch.equal(acted, b["mask"])
        for key in ("reward", "terminated", "done"):
            assert torch.equal(a[key], b[key]), key
        for key in ("observation", "next_observation"):
            torch.testing.assert_close(a[key][acted], b[key][acted], rtol=0, atol=1e-6)


def test_gridworld_moves_left_down_right_up_and_stops_at_walls():
    env = make(gridworld, size=3, goal=(2, 2), trap=(1, 1))
    move = env.model().transition.argmax(-1)
    assert move[0].tolist() == [0, 3, 1, 0]  # the top left corner
    assert move[5].tolist() == [4, 8, 5, 2]  # into the trap, into the goal, against the wall, up
    assert env.model().reward[5].tolist() == [-1.0, 1.0, 0.0, 0.0]
    assert env.model().terminal.nonzero()[:, 0].tolist() == [4, 8]
    assert env.model().start.tolist() == [1 / 7 if s not in (4, 8) else 0.0 for s in range(9)]


def test_gridworlds_goal_trap_and_start_move_by_config():
    env = make(gridworld, goal=(0, 2), trap=(1, 0), start=(0, 0), rows=1)
    right, down = (Chooses(lambda o, a=a: torch.full_like(o, a)) for a in (2, 1))
    good, bad = env.rollout(right), env.rollout(down)
    assert good["reward"].tolist() == [[0.0, 1.0]] and good["terminated"].tolist() == [[False, True]]
    assert bad["reward"].tolist() == [[-1.0]] and bad["next_observation"].tolist() == [[8]]
    cut = make(gridworld, start=(0, 0), rows=1, step_limit=3).rollout(Chooses(torch.zeros_like))
    assert cut["done"].tolist() == [[False, False, True]] and not cut["terminated"].any()


def test_gridworlds_slip_goes_to_either_side():
    model = make(gridworld, slip=0.2).model()
    assert model.transition[9, 2, [10, 1, 17]].tolist() == pytest.approx([0.8, 0.1, 0.1])
    torch.testing.assert_close(model.transition.sum(-1), torch.ones(64, 4, dtype=torch.float64))


@pytest.mark.parametrize("config", [{"goal": (8, 0)}, {"trap": (0, -1)}, {"start": (0, 9)}])
def test_a_cell_outside_the_grid_is_refused(config):
    with pytest.raises(UserError, match="outside the grid: rows and columns are 0 to 7"):
        make(gridworld, **config)


def test_two_things_in_one_cell_are_refused():
    with pytest.raises(UserError, match="same cell"):
        make(gridworld, goal=(1, 1), trap=(1, 1))


def test_stepping_the_model_is_as_lucky_as_the_model_says():
    from rlkit import exact

    env = make(frozenlake)
    table = exact.greedy(env.model(), exact.optimal_values(env.model(), 0.99), 0.99)
    scores = env.evaluate(table, 4000, "test").score
    expected = env.exact(table)["success_within_limit"]
    assert abs(float(scores.mean()) - expected) < 4 * (expected * (1 - expected) / 4000) ** 0.5
