"""What an algorithm must save is declared, and nothing else that it holds can be lost without a word."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes import RaggedText, algorithm, cartpole, iterate, on_text, tabular
from support.resuming import same
from tensordict import TensorDict

from rlkit import loop, policies, run
from rlkit.api import UserError
from rlkit.progress import Progress, check_saved, restore, save
from rlkit.recording import checkpoint
from rlkit.settings import plugins
from rlkit.settings.config import Run

TABLES = ("value_iteration", "policy_iteration", "monte_carlo", "td", "q_learning", "sarsa", "expected_sarsa")
EVERYTHING: dict[str, dict[str, Any]] = {  # the keys that give an algorithm something more to save
    "a2c": {"normalize_reward": True},
    "dapo": {"kl_coef": 0.1},
    "dqn": {"hold": 5, "n_step": 3, "prioritized": True, "warmup_steps": 8, "capacity": 64, "batch_size": 4},
    "grpo": {"kl_coef": 0.1},
    "ppo": {"kl_coef": 0.1, "kl_target": 1.0, "normalize_reward": True, "horizon": 8},
    "td": {"n": 3},
}


def made(name: str) -> tuple[Any, Any]:
    """An algorithm with all that it can hold, on an environment that suits it."""
    config = EVERYTHING.get(name, {})
    if name in TABLES:
        env: Any = tabular("frozenlake", rows=2)
        return algorithm(name, env, **config), env
    if name in ("sft", "reward_model"):
        env = RaggedText(rows=3)
        env.state_dict, env.load_state_dict = lambda: {}, lambda state: None
        return on_text(name, env, **config), env
    env = cartpole(3, step_limit=40)
    return algorithm(name, env, policies.Network(normalize=True), **config), env


@pytest.mark.parametrize("name", plugins.names("algorithms"))
def test_what_an_algorithm_of_the_project_holds_is_saved_and_put_back(name: str, tmp_path: Path) -> None:
    algo, env = made(name)
    progress = Progress(constants=check_saved(algo))
    for _ in range(5):
        iterate(algo, env)
    save(tmp_path, algo, env, progress)
    again, second = made(name)
    restore(tmp_path, again, second)
    save(tmp_path / "again", again, second, progress)
    states = [checkpoint.load(folder) for folder in (tmp_path, tmp_path / "again")]
    for key in ("parts", "numbers", "generators", "env"):
        assert same(states[0][key], states[1][key]), key


def test_everything_is_really_held() -> None:
    for name in EVERYTHING:
        held = [key for key in made(name)[0].saved if vars(made(name)[0])[key] is not None]
        assert set(held) == set(type(made(name)[0]).saved), name


# What would be lost


class Counts:
    """Has a state of its own."""

    def state_dict(self) -> dict[str, Any]:
        return {}


LOST: dict[str, Callable[[], Any]] = {
    "a tensor": lambda: torch.zeros(3),
    "a parameter": lambda: torch.nn.Parameter(torch.zeros(3)),
    "a module": lambda: torch.nn.Linear(2, 2),
    "an optimizer": lambda: torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=0.1),
    "tensors in a list": lambda: [1, torch.zeros(3)],
    "tensors in a tuple": lambda: (torch.zeros(3),),
    "modules in a dictionary": lambda: {"one": torch.nn.Linear(2, 2)},
    "a dictionary in a list in a dictionary": lambda: {"one": [{"two": torch.zeros(3)}]},
    "a batch": lambda: TensorDict({"x": torch.zeros(3)}, [3]),
    "what has a state": Counts,
    "what has a state, in a list": lambda: [Counts()],
    "an array": lambda: np.zeros(3),
    "an array in a list": lambda: [np.zeros(3)],
    "tensors in a queue": lambda: deque([torch.zeros(3)]),
    "a generator in a list": lambda: [torch.Generator()],
    "a generator of NumPy": lambda: np.random.default_rng(0),
}


def holding(key: str, value: Any, saved: tuple[str, ...] = ()) -> tuple[Any, Any]:
    """Q-learning that holds something more."""
    module = plugins.load("algorithms", "q_learning")
    env = tabular("frozenlake", rows=2)
    kind = type("Mine", (module.make,), {"saved": (*module.make.saved, *saved)})
    algo = kind(module.Config(), env, None)
    vars(algo)[key] = value
    return algo, env


@pytest.mark.parametrize("what", LOST)
def test_state_that_would_be_lost_is_refused_by_name(what: str) -> None:
    algo, env = holding("memory", LOST[what]())
    algo.rollout = lambda env: pytest.fail("it began to play")
    words = (
        r"^Mine\.memory looks like state \(\w+\) and would not be saved: write saved = \(\*Algorithm\.saved, 'memory'"
    )
    with pytest.raises(UserError, match=words) as error:
        loop.train(algo, env, Run(iterations=1), SimpleNamespace(), Progress())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [None, "text", (1, 2), [0.5], {"a": {"b": [None]}}, torch.float32, max, slice(3)])
def test_what_holds_no_state_is_no_concern(value: Any) -> None:
    assert check_saved(holding("memory", value)[0]) == {}


def test_a_generator_of_its_own_needs_no_declaration(tmp_path: Path) -> None:
    algo, env = holding("luck", torch.Generator().manual_seed(3))
    check_saved(algo)
    save(tmp_path, algo, env, Progress())
    expected = torch.rand(5, generator=algo.luck)
    again, second = holding("luck", torch.Generator())
    restore(tmp_path, again, second)
    assert torch.equal(torch.rand(5, generator=again.luck), expected)


def test_what_is_declared_is_saved_whatever_it_is(tmp_path: Path) -> None:
    algo, env = holding("memory", torch.nn.Linear(2, 2), saved=("memory", "count"))
    algo.count = 7
    check_saved(algo)
    save(tmp_path, algo, env, Progress())
    again, second = holding("memory", torch.nn.Linear(2, 2), saved=("memory", "count"))
    again.count = 0
    restore(tmp_path, again, second)
    assert torch.equal(again.memory.weight, algo.memory.weight) and again.count == 7


def test_a_declared_tensor_is_put_back_in_place(tmp_path: Path) -> None:
    algo, env = holding("memory", torch.nn.Parameter(torch.ones(3)), saved=("memory",))
    save(tmp_path, algo, env, Progress())
    weight = torch.nn.Parameter(torch.zeros(3))
    again, second = holding("memory", weight, saved=("memory",))
    restore(tmp_path, again, second)
    assert again.memory is weight and weight.tolist() == [1.0, 1.0, 1.0]  # an optimizer may hold it


@pytest.mark.parametrize("value", [[torch.zeros(3)], {"one": torch.nn.Linear(2, 2)}, np.zeros(3), "text"])
def test_what_is_declared_and_cannot_be_saved_is_refused(value: Any) -> None:
    algo, _ = holding("memory", value, saved=("memory",))
    with pytest.raises(
        UserError, match=rf"^Mine\.saved names 'memory', a {type(value).__name__}: only numbers, tensors"
    ):
        check_saved(algo)


def test_a_name_of_nothing_is_refused() -> None:
    algo, _ = holding("memory", None, saved=("memroy",))
    with pytest.raises(UserError, match=r"^Mine\.saved names 'memroy', and there is no such attribute: remove it, or"):
        check_saved(algo)


@pytest.mark.parametrize("value", [3, 0.5, True, -1])
def test_a_number_that_changed_is_refused_when_the_run_is_saved(value: float, tmp_path: Path) -> None:
    algo, env = holding("count", 0)
    progress = Progress(constants=check_saved(algo))
    algo.progress = 0.7  # the loop sets it anew
    save(tmp_path, algo, env, progress)
    algo.count = value
    with pytest.raises(UserError, match=rf"^Mine\.count changed from 0 to {value} and would not be saved: write saved"):
        save(tmp_path, algo, env, progress)
    assert checkpoint.load(tmp_path)["progress"]["iteration"] == 0  # the one before is whole


@pytest.mark.parametrize("key", ["memory", "later"])
@pytest.mark.parametrize("what", LOST)
def test_state_that_came_only_later_is_refused_when_the_run_is_saved(what: str, key: str, tmp_path: Path) -> None:
    algo, env = holding("memory", None)
    progress = Progress(constants=check_saved(algo))
    save(tmp_path, algo, env, progress)
    vars(algo)[key] = LOST[what]()
    with pytest.raises(UserError, match=rf"^Mine\.{key} looks like state \(\w+\) and would not be saved"):
        save(tmp_path, algo, env, progress)


def test_a_number_that_came_only_later_is_refused_when_the_run_is_saved(tmp_path: Path) -> None:
    algo, env = holding("count", None)
    progress = Progress(constants=check_saved(algo))
    algo.count = 4
    with pytest.raises(UserError, match=r"^Mine\.count changed from None to 4 and would not be saved"):
        save(tmp_path, algo, env, progress)


def test_a_checkpoint_without_what_an_algorithm_needs_is_refused(tmp_path: Path) -> None:
    save(tmp_path, *holding("memory", None), Progress())
    algo, env = holding("memory", torch.nn.Linear(2, 2), saved=("memory",))
    with pytest.raises(UserError, match=r"its checkpoint has no 'memory', which Mine needs; start a new run"):
        restore(tmp_path, algo, env)


MINE = """
import torch
from rlkit.algorithms import q_learning

Config = q_learning.Config


class Mine(q_learning.QLearning):
    {saved}
    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.average = torch.nn.Linear(1, 1)


make = Mine
"""


@pytest.mark.parametrize("saved", ["", "saved = (*q_learning.QLearning.saved, 'average')\n"])
def test_a_plug_in_that_would_lose_its_state_ends_in_one_line(saved: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(saved=saved))
    keys = [f"algo={tmp_path / 'mine.py'}", "env=frozenlake", "iterations=2", "evaluation_episodes=2", "threads=1"]
    assert run.main([*keys, f"out={tmp_path / 'r'}"]) == (0 if saved else 2)
    said = capsys.readouterr().err
    assert ("Mine.average looks like state (Linear)" in said) == (not saved)
    assert bool((tmp_path / "r" / "checkpoints").exists()) == bool(saved)
