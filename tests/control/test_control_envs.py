"""The environments: Gymnasium's by id, the gridworld, and tables that are stepped from their model."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from support.probes import Chooses, Draws, control, make, same

from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.control import env as control_env
from rlkit.control.numpy_env import Batched
from rlkit.settings import plugins

cartpole = plugins.load("envs", "cartpole")
gym = plugins.load("envs", "gym")
frozenlake = plugins.load("envs", "frozenlake")
gridworld = plugins.load("envs", "gridworld")


def test_a_table_of_actions_can_be_evaluated():
    env = make(gridworld, start=(0, 0))
    table = torch.full((64,), 2).index_fill(0, torch.arange(7, 64, 8), 1)  # right, then down along the wall
    scores = env.evaluate(table, 4)
    assert scores.score.tolist() == [1.0] * 4 and scores.length.tolist() == [14] * 4


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
    with pytest.raises(UserError, match="cannot start two copies alike"):
        env.rollout(Draws(env), repeats=2)


def test_an_unknown_id_is_answered_with_the_nearest_ones():
    with pytest.raises(UserError, match=r"env\.id=acrobot.*Acrobot-v1"):
        make(gym, id="acrobot")
    with pytest.raises(UserError, match="CartPole-v1"):
        make(gym, id="CartPole-v7")


def test_spaces_and_arguments_that_cannot_be_are_refused():
    assert make(gym, id="Blackjack-v1").observation_space[0].n == 32
    with pytest.raises(UserError, match="gravitas"):
        make(gym, id="CartPole-v1", kwargs={"gravitas": 1})


def test_a_class_gets_a_keyword_that_gymnasium_would_take_for_its_own():
    class Long(type(gymnasium.make("CartPole-v1").unwrapped)):
        def __init__(self, max_episode_steps=7, render_mode=None):
            super().__init__(render_mode=render_mode)
            self.most = max_episode_steps

    config = gym.Config(kwargs={"max_episode_steps": 9}, entry="<Long>")
    made = gym.make_one(config, Long)
    assert made.unwrapped.most == 9 and gym.told(config, Long)[1] is None
    assert gym.make_one(config, Long, "rgb_array").render_mode == "rgb_array"
    with pytest.raises(UserError, match="unexpected keyword argument 'max_episode_steps'"):
        gym.make_one(config, type(made.unwrapped).__base__)


def test_a_missing_package_is_named(monkeypatch):
    def missing(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(UserError, match=r"pip install 'gymnasium\[box2d\]'"):
        make(gym, id="LunarLander-v3")


def test_an_import_that_is_wrong_is_no_missing_package():
    def mistaken():
        from math import no_such_name

        return no_such_name

    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        gym.make_one(gym.Config(entry="mine"), mistaken)


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


class Endless(gymnasium.Env):
    """Never ends by itself."""

    observation_space = action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        Endless.steps += 1
        return 0, 0.0, False, False, {}


@pytest.mark.parametrize("play", ["rollout", "evaluate"])
@pytest.mark.slow
def test_an_episode_that_does_not_end_is_given_up_soon_and_the_key_is_named(play):
    Endless.steps = 0
    env = gym.make(gym.Config(rows=2, entry="endless"), 0, "cpu", factory=Endless)
    wait = Chooses(torch.zeros_like)
    line = r"^Gymnasium endless: an episode did not end in 10,000 steps and .* known: give env\.step_limit=N$"
    with pytest.raises(UserError, match=line):
        env.rollout(wait) if play == "rollout" else env.evaluate(wait, 2)
    assert Endless.steps == 20_000 + 2  # which tried whether a step gives what Gymnasium says, and a mask


def test_an_episode_may_be_as_long_as_its_step_limit_says(monkeypatch):
    monkeypatch.setattr(control_env, "LONGEST_EPISODE", 50)
    env = gym.make(gym.Config(rows=1, entry="endless", step_limit=80), 0, "cpu", factory=Endless)
    wait = Chooses(torch.zeros_like)
    assert env.evaluate(wait, 1).length.tolist() == [80] and env.rollout(wait)["mask"].sum() == 80


def test_the_limit_of_a_wrapper_is_known_where_there_is_no_specification():
    assert control(Endless, limit=70).longest == 70
    assert ControlEnv(lambda n: SyncVectorEnv([Endless] * n, autoreset_mode="Disabled"), 1).longest is None


class Noisy(Batched):
    """What is seen of a state has noise; an episode ends after one step to the right, or after nine."""

    def __init__(self, n: int) -> None:
        super().__init__(n, 9, 1, Box(-9, 9, (1,)), Discrete(2))
        self.noise = np.random.default_rng(0)

    def start(self, draw: np.random.Generator) -> list[float]:
        return [draw.uniform()]

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(self.num_envs), actions == 1

    def observe(self) -> np.ndarray:
        return (self.state.T + self.noise.normal(size=(self.num_envs, 1))).astype(np.float32)


def test_a_reset_of_some_copies_in_numpy_leaves_to_the_others_what_they_saw() -> None:
    env = ControlEnv(Noisy, 3)
    rollout = env.rollout(Draws(env), steps=30)
    seen, then, done = (rollout[key] for key in ("observation", "next_observation", "done"))
    assert torch.equal(then[:, :-1] != seen[:, 1:], done[:, :-1, None]) and 0 < done.sum() < done.numel()
