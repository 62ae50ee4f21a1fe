"""Several agents: rows that begin together, leave one by one and wait, and are measured by the game."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from support.fakes import algorithm, iterate
from support.probes import Draws

from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.control.agents import Together
from rlkit.control.video import frames
from rlkit.policies import Network
from rlkit.settings import plugins

games = plugins.load("envs", "pettingzoo")
SMALL = Network(hidden=(8,))


class Leaving:
    """Agent i is terminated at step i + 2 and earns i + 1 a step; what it sees is (seed, step)."""

    possible_agents = ("a", "b", "c")

    def __init__(self, render_mode: str | None = None) -> None:
        self.agents: list[str] = []
        self.told: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> Any:
        return Box(0, np.inf, (2,))

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.at, self.seed = list(self.possible_agents), 0, float(seed or 0)
        return self.look(), {}

    def look(self) -> dict[str, Any]:
        return {name: np.array([self.seed, self.at], dtype=np.float32) for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        assert list(actions) == self.agents
        self.told.append(actions)
        self.at += 1
        number = {name: i for i, name in enumerate(self.possible_agents)}
        ends = {name: self.at >= number[name] + 2 for name in self.agents}
        rewards = {name: number[name] + 1.0 for name in self.agents}
        seen, flags = self.look(), dict.fromkeys(self.agents, False)
        self.agents = [name for name in self.agents if not ends[name]]
        return seen, rewards, ends, flags, {}

    def close(self) -> None: ...


def leaving(rows: int = 2, **keys: Any) -> ControlEnv:
    return ControlEnv(lambda n: Together(Leaving, n, "it", **keys), 3 * rows, agents=3, source="it")


def test_who_leaves_waits_until_the_others_have_left() -> None:
    env = leaving()
    rollout = env.rollout(Draws(env), steps=9)
    t, f = True, False
    assert rollout["done"][:3].tolist() == [
        [f, t, f, f, f, t, f, f, f],
        [f, f, t, f, f, f, t, f, f],
        [f, f, f, t, f, f, f, t, f],
    ]
    assert torch.equal(rollout["done"], rollout["terminated"])
    assert rollout["mask"][0].tolist() == [t, t, f, f, t, t, f, f, t] and rollout["mask"][2].all()
    assert rollout["reward"][0].tolist() == [1, 1, 0, 0, 1, 1, 0, 0, 1]
    assert rollout["episode_return"].max(-1).values.tolist() == [2, 6, 12] * 2
    assert rollout["episode_length"].max(-1).values.tolist() == [2, 3, 4] * 2
    assert rollout["next_observation"][0, 1, 1] == 2.0  # what it saw last, and then, waiting, what it saw first
    assert rollout["observation"][0, :, 1].tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 0]
    seeds = rollout["observation"][:, :, 0]
    assert torch.equal(seeds[0], seeds[2]) and seeds[0, 0] != seeds[0, 4] and seeds[0, 0] != seeds[3, 0]


def test_an_episode_has_one_score() -> None:
    env = leaving()
    found = env.evaluate(Draws(env), 5)
    assert found.score.tolist() == [20 / 3] * 5 and found.length.tolist() == [4] * 5
    whole = env.rollout(Draws(env))
    assert whole["score"].tolist() == [2, 6, 12] * 2 and whole["mask"].sum(-1).tolist() == [2, 3, 4] * 2


def test_what_is_shown_ends_with_what_the_first_agent_saw_last() -> None:
    env = leaving()
    shown = frames(env, Draws(env), draw=False)
    assert [frame["observation"][1] for frame in shown] == [0, 1, 2] and shown[-1]["action"] is None


@pytest.mark.parametrize("before", range(1, 10))
def test_it_goes_on_where_it_stopped(before: int, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = leaving(), leaving()
    policy, again = Draws(one), Draws(other)
    one.rollout(policy, steps=before)
    again.generator.set_state(policy.generator.get_state())
    other.load_state_dict(one.state_dict())
    expected, found = one.rollout(policy, steps=6), other.rollout(again, steps=6)
    assert all(torch.equal(expected[key], found[key]) for key in expected.keys())
    assert not capsys.readouterr().err  # nothing that was noted comes out otherwise


def test_algorithms_learn_from_who_leaves() -> None:
    env = leaving()
    for name in ("ppo", "dqn"):
        keys = {"warmup_steps": 4, "steps": 5, "batch_size": 4, "n_step": 3} if name == "dqn" else {"horizon": 5}
        algo = algorithm(name, env, Network(hidden=(8,), normalize=True), **keys)
        for _ in range(3):
            rollout = iterate(algo, env)
        assert not rollout["mask"].all()


def test_groups_are_refused_in_one_line() -> None:
    env = leaving()
    line = r"^it: its agents play each episode together, .*use algo=ppo"
    with pytest.raises(UserError, match=line):
        env.rollout(Draws(env), repeats=2)
    for name in ("grpo", "dpo"):
        with pytest.raises(UserError, match=line):
            algorithm(name, env, SMALL)
    with pytest.raises(UserError, match=line):  # agents of one game are not unrelated episodes either
        algorithm("grpo", env, SMALL, starts="own", group=2)


def test_a_rollout_without_room_is_said_to_be_of_as_many_copies_as_were_given() -> None:
    with pytest.raises(UserError, match=r"^algo\.horizon=1000000000000 with env\.rows=2 needs "):
        algorithm("ppo", leaving(2), SMALL, horizon=10**12)


def test_an_observation_may_say_which_agent_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    env = leaving(numbered=True)
    assert env.observation_space == Dict(agent=Discrete(3), observation=Box(0, np.inf, (2,)))
    iterate(algorithm("ppo", env, SMALL, horizon=5), env)
    masked = Dict(observation=Box(0, 1, (2,)), action_mask=MultiBinary(2))
    monkeypatch.setattr(Leaving, "observation_space", lambda *_: masked)
    monkeypatch.setattr(Leaving, "look", lambda self: {n: masked.sample() for n in self.agents})
    vector = Together(Leaving, 3, "it", numbered=True)
    assert set(vector.reset(seed=[0, 0, 0])[0]) == {"observation", "action_mask", "agent"}


def test_a_step_limit_truncates_who_is_in_the_game() -> None:
    env = leaving(step_limit=3)
    rollout = env.rollout(Draws(env), steps=3)
    assert env.longest == 3 and rollout["done"].sum(-1).tolist() == [1] * 6
    assert rollout["terminated"].sum(-1).tolist() == [1, 1, 0] * 2


def test_each_episode_may_have_a_game_of_its_own() -> None:
    vector = Together(Leaving, 3, "it", anew=True)
    vector.reset(seed=[0, 0, 0])
    game = vector.games[0]
    vector.reset(seed=[1, 1, 1])
    assert vector.games[0] is not game


def test_agents_that_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leaving, "action_space", lambda self, name: Discrete(2 + (name == "c")))
    with pytest.raises(UserError, match=r"^it: agents share one policy, and a has the actions Discrete\(2\), c "):
        leaving()


def made(**keys: Any) -> ControlEnv:
    return games.make(games.Config(**{"rows": 2, **keys}), 0, torch.device("cpu"))


def test_games_of_the_packages_are_played() -> None:
    env = made(id="mpe2.simple_spread_v3", kwargs={"max_cycles": 10})
    assert env.rows == 6 and env.source == "mpe2.simple_spread_v3, 3 agents (PettingZoo)"
    rollout = iterate(algorithm("ppo", env, SMALL, horizon=20), env)
    assert rollout["episode_length"].max(-1).values.tolist() == [10] * 6 and not rollout["terminated"].any()
    drawn = frames(env, Draws(env))
    assert len(drawn) == 11 and drawn[0]["image"].any()


OWN = """
import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv


class Guess(ParallelEnv):
    metadata = {}
    possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return Box(0, 1, (1,))

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        self.coin = np.random.default_rng(seed).integers(2)
        return dict.fromkeys(self.agents, np.float32([self.coin])), {}

    def step(self, actions):
        right = float(all(action == self.coin for action in actions.values()))
        ends, self.agents = dict.fromkeys(self.agents, True), []
        return dict.fromkeys(ends, np.float32([0])), dict.fromkeys(ends, right), ends, dict.fromkeys(ends, False), {}
"""


@pytest.mark.slow
def test_a_game_of_ones_own_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_guess.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    env = made(entry="own_guess:Guess", rows=16)
    algo = algorithm("ppo", env, SMALL, horizon=16, lr=1e-2)
    for _ in range(12):
        iterate(algo, env)
    assert env.evaluate(algo.policy, 20).score.mean() == 1.0
    with pytest.raises(UserError, match=r"^env\.entry=builtins:dict makes a dict: it has to be a pettingzoo\.Parallel"):
        made(entry="builtins:dict")


def test_no_game_changes_what_another_one_was_given() -> None:
    config = games.Config(id="it", kwargs={"order": (given := [1])})
    games.made(config, lambda order: order.append(2))
    assert given == [1]


def test_a_game_opens_no_window_and_is_drawn_all_the_same() -> None:
    with pytest.raises(UserError, match=r"^env\.kwargs\.render_mode=human is not allowed: a run opens no window"):
        made(id="mpe2.simple_spread_v3", kwargs={"render_mode": "human"})
    env = made(id="mpe2.simple_spread_v3", kwargs={"render_mode": "rgb_array", "max_cycles": 2})
    assert len(frames(env, Draws(env))) == 3


def test_a_game_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for keys, line in {
        "": r"^env=pettingzoo needs one game: give env\.id=MODULE",
        "mpe2.simple_spred_v3": r"^env\.id=mpe2\.simple_spred_v3 is not a game .*: did you mean mpe2\.simple_spread_v3",
        "pettingzoo.classic.chess_v6": r"^env\.id=pettingzoo\.classic\.chess_v6 needs a package|is played in turns",
    }.items():
        with pytest.raises(UserError, match=line):
            made(id=keys)
    with pytest.raises(UserError, match=r"^env\.id=mpe2\.simple_spread_v3 with env\.kwargs=.* cannot be made: "):
        made(id="mpe2.simple_spread_v3", kwargs={"rounds": 3})
    monkeypatch.setattr(games.importlib, "import_module", lambda name: SimpleNamespace())
    monkeypatch.setattr(games, "games", lambda: ["mpe2.x_v1"])
    with pytest.raises(UserError, match=r"^env\.id=mpe2\.x_v1 is played in turns, and here agents act at once"):
        made(id="mpe2.x_v1")
    monkeypatch.setitem(sys.modules, "mpe2", None)
    with pytest.raises(UserError, match=r"needs the packages pettingzoo and mpe2: pip install -e '\.\[pettingzoo\]'$"):
        made(id="mpe2.simple_spread_v3")
