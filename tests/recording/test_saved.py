"""What an algorithm must save is declared, and nothing else that it holds can be lost without a word."""

import itertools
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes import RaggedText, algorithm, cartpole, iterate, on_text, tabular
from support.resuming import same
from tensordict import TensorDict

from rlkit import buffers, loop, policies, run
from rlkit.api import UserError
from rlkit.attributes import digest
from rlkit.held import check_saved, fingerprints
from rlkit.progress import Progress, restore, save
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
    check_saved(algo)
    progress = Progress(held=fingerprints(algo, env))
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
        algo = made(name)[0]
        assert all(attrgetter(key)(algo) is not None for key in algo.saved), name


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
    "modules in a list": lambda: [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)],
    "tensors in a tuple": lambda: (torch.zeros(3),),
    "tensors in a frozenset": lambda: frozenset([torch.zeros(3)]),
    "the values of a dictionary of tensors": lambda: {"one": torch.zeros(3)}.values(),
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
    "an old generator of NumPy": lambda: np.random.RandomState(0),
    "a generator of Python": lambda: random.Random(0),
    "a count": itertools.count,
    "an iterator": lambda: iter([1, 2]),
}


class Helper:
    """Something of the user's that holds whatever it holds."""

    def __init__(self, inside: Any = 0) -> None:
        self.inside = inside


@dataclass(slots=True)
class Slots:
    inside: Any = 0


def counting() -> Callable[[], int]:
    """A function that remembers."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return count

    return step


def add(x: Any, key: Any, value: Any) -> None:
    x[key] = value


CHANGING: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {  # how it starts, and what happens to it
    "a list": (list, lambda x: x.append(1)),
    "a dictionary": (dict, lambda x: add(x, "a", 1)),
    "a dictionary in a dictionary": (lambda: {"a": {}}, lambda x: add(x["a"], "b", 1)),
    "a counter": (Counter, lambda x: x.update("a")),
    "a default dictionary": (lambda: defaultdict(int), lambda x: add(x, 3, 4)),
    "a set": (set, lambda x: x.add(3)),
    "a queue": (lambda: deque([1], 3), lambda x: x.append(2)),
    "a helper with a number": (Helper, lambda x: setattr(x, "inside", 1)),
    "a helper with slots": (Slots, lambda x: setattr(x, "inside", 1)),
    "a helper with a generator": (lambda: Helper(torch.Generator()), lambda x: torch.rand(1, generator=x.inside)),
    "a helper with NumPy's generator": (lambda: Helper(np.random.default_rng(0)), lambda x: x.inside.random()),
    "a helper with Python's generator": (lambda: Helper(random.Random(0)), lambda x: x.inside.random()),
    "a helper with a tensor": (lambda: Helper(torch.zeros(3)), lambda x: x.inside.add_(1)),
    "a helper with a large tensor": (lambda: Helper(torch.zeros(10**6)), lambda x: x.inside.data.add_(1)),
    "a helper with a module": (lambda: Helper(torch.nn.Linear(2, 2)), lambda x: x.inside.weight.data.add_(1)),
    "a helper in a helper in a list": (lambda: [Helper(Helper())], lambda x: setattr(x[0].inside, "inside", 2)),
    "a helper with a count": (lambda: Helper(itertools.count()), lambda x: next(x.inside)),
    "a function": (counting, lambda x: x()),
    "a method of a helper": (lambda: Helper([]).inside.append, lambda x: x(1)),
}
REPLACED: dict[str, tuple[Any, Any]] = {  # what it is, and what it is then
    "an integer of NumPy": (np.int64(1), np.int64(2)),
    "a number of NumPy": (np.float32(1), np.float32(2)),
    "a text": ("a", "ab"),
    "a tuple": ((1, 2), (1, 2, 3)),
    "a frozenset": (frozenset([1]), frozenset([1, 2])),
    "a truth": (False, True),
    "a number": (0, 3),
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
        r"^Mine\.memory looks like state \(\w+\) and would not be saved: "
        r"write saved = \(\*QLearning\.saved, 'memory'\) in Mine$"
    )
    with pytest.raises(UserError, match=words) as error:
        loop.train(algo, env, Run(iterations=1), SimpleNamespace(), Progress())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [None, "text", (1, 2), [0.5], {"a": {"b": [None]}}, torch.float32, max, slice(3)])
def test_what_holds_no_state_is_no_concern(value: Any, tmp_path: Path) -> None:
    algo, env = holding("memory", value)
    check_saved(algo)
    save(tmp_path, algo, env, Progress(held=fingerprints(algo, env)))


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


@pytest.mark.parametrize("value", [[torch.nn.Linear(2, 2)], {"one": torch.nn.Linear(2, 2)}, Helper(), max, [Helper()]])
def test_what_is_declared_and_cannot_be_saved_is_refused(value: Any) -> None:
    algo, _ = holding("memory", value, saved=("memory",))
    with pytest.raises(
        UserError, match=rf"^Mine\.saved names 'memory', a {type(value).__name__}: only numbers, texts, tensors"
    ):
        check_saved(algo)


def test_a_name_of_nothing_is_refused() -> None:
    algo, _ = holding("memory", None, saved=("memroy",))
    with pytest.raises(UserError, match=r"^Mine\.saved names 'memroy', and there is no such attribute: remove it, or"):
        check_saved(algo)


def refused(folder: Path, algo: Any, env: Any, progress: Progress, name: str) -> None:
    """What has changed is told by its name, and the checkpoint before stays."""
    with pytest.raises(UserError, match=rf"^Mine\.{name} has changed since the run began and would not be saved"):
        save(folder, algo, env, progress)
    assert checkpoint.load(folder)["progress"]["iteration"] == 0


@pytest.mark.parametrize("what", CHANGING)
def test_whatever_changes_and_is_not_saved_is_refused_when_the_run_is_saved(what: str, tmp_path: Path) -> None:
    make, change = CHANGING[what]
    algo, env = holding("memory", make())
    check_saved(algo)
    progress = Progress(held=fingerprints(algo, env))
    algo.progress = 0.7  # the loop sets it anew
    save(tmp_path, algo, env, progress)
    change(algo.memory)
    refused(tmp_path, algo, env, progress, "memory")


@pytest.mark.parametrize("what", REPLACED)
def test_whatever_is_replaced_and_not_saved_is_refused_when_the_run_is_saved(what: str, tmp_path: Path) -> None:
    algo, env = holding("memory", REPLACED[what][0])
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    algo.memory = REPLACED[what][1]
    refused(tmp_path, algo, env, progress, "memory")


@pytest.mark.parametrize("part", ["policy", "buffer", "window", "policy.q"])
def test_plain_attributes_of_what_is_saved_are_looked_at_too(part: str, tmp_path: Path) -> None:
    algo, env = holding("window", buffers.Window(1), saved=("window",))
    held = attrgetter(part)(algo)
    held.temp = 0
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    iterate(algo, env)  # what they do have in their state may change
    save(tmp_path, algo, env, progress)
    held.temp = 1
    refused(tmp_path, algo, env, progress, rf"{part}\.temp")


def test_a_buffer_that_no_state_dict_holds_is_refused(tmp_path: Path) -> None:
    algo, env = holding("memory", None)
    algo.policy.register_buffer("average", torch.zeros(3), persistent=False)
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    algo.policy.average += 1
    refused(tmp_path, algo, env, progress, r"policy\.average")


def test_all_that_is_missing_is_told_at_once_and_so_is_the_line_that_saves_it() -> None:
    algo, _ = holding("critics", torch.nn.Linear(2, 2), saved=("count",))
    algo.count, algo.log_alpha = 3, torch.zeros(())
    with pytest.raises(
        UserError, match=r"Mine\.critics looks .*, Mine\.log_alpha looks like state \(Tensor\)"
    ) as error:
        check_saved(algo)
    line = str(error.value).partition("write ")[2].partition(" in Mine")[0]
    assert line == "saved = (*QLearning.saved, 'count', 'critics', 'log_alpha')"


def test_a_text_in_place_of_names_is_said_as_such() -> None:
    algo, _ = holding("memory", None)
    type(algo).saved = "policy"
    with pytest.raises(
        UserError, match=r"^Mine\.saved is 'policy': write a tuple of names, saved = \(\*Algorithm\.saved"
    ):
        check_saved(algo)


def test_what_was_nothing_first_and_could_not_be_put_back_is_refused(tmp_path: Path) -> None:
    algo, env = holding("memory", None, saved=("memory",))
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    for value, name in ((torch.nn.Linear(2, 2), "Linear"), (3, "int")):
        algo.memory = value
        with pytest.raises(UserError, match=rf"^Mine\.memory was None when the run began and is a {name} now"):
            save(tmp_path, algo, env, progress)
    progress.held = fingerprints(algo, env)
    algo.memory = None
    with pytest.raises(UserError, match=r"^Mine\.memory was something when the run began and is None now"):
        save(tmp_path, algo, env, progress)


DECLARED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    **{key: CHANGING[key] for key in ("a list", "a dictionary", "a dictionary in a dictionary", "a counter", "a set")},
    **{key: CHANGING[key] for key in ("a default dictionary", "a queue")},
    "an array": (lambda: np.zeros((2, 3)), lambda x: add(x, 0, 1.5)),
    "tensors in a dictionary": (lambda: {"a": torch.zeros(2)}, lambda x: add(x, "b", torch.ones(3))),
    "a generator of torch": (torch.Generator, lambda x: torch.rand(3, generator=x)),
    "a generator of NumPy": (lambda: np.random.default_rng(0), lambda x: x.random()),
    "an old generator of NumPy": (lambda: np.random.RandomState(0), lambda x: x.normal()),
    "a generator of Python": (lambda: random.Random(0), lambda x: x.gauss()),
}


@pytest.mark.parametrize("what", DECLARED)
def test_collections_and_generators_that_are_declared_come_back(what: str, tmp_path: Path) -> None:
    make, change = DECLARED[what]
    algo, env = holding("memory", make(), saved=("memory",))
    check_saved(algo)
    change(algo.memory)
    save(tmp_path, algo, env, Progress(held=fingerprints(algo, env)))
    again, second = holding("memory", make(), saved=("memory",))
    there = again.memory
    restore(tmp_path, again, second)
    assert again.memory is there and type(there) is type(algo.memory)  # in place: others may hold it
    assert digest(there) == digest(algo.memory) != digest(make())


@pytest.mark.parametrize("what", REPLACED)
def test_plain_values_that_are_declared_come_back(what: str, tmp_path: Path) -> None:
    first, then = REPLACED[what]
    algo, env = holding("memory", then, saved=("memory",))
    save(tmp_path, algo, env, Progress())
    again, second = holding("memory", first, saved=("memory",))
    restore(tmp_path, again, second)
    assert same(again.memory, then)


def test_a_name_with_dots_saves_what_a_part_holds(tmp_path: Path) -> None:
    names = ("policy.temp", "policy.q.scale", "helper.inside")
    both = []
    for _ in range(2):
        algo, env = holding("helper", Helper(torch.Generator()), saved=names)
        algo.policy.temp, algo.policy.q.scale = 1.0, np.zeros(2)
        both.append((algo, env))
    (algo, env), (again, second) = both
    progress = Progress(held=fingerprints(algo, env))
    algo.policy.temp = 0.5
    algo.policy.q.scale += 2
    torch.rand(3, generator=algo.helper.inside)
    save(tmp_path, algo, env, progress)
    restore(tmp_path, again, second)
    assert again.policy.temp == 0.5 and again.policy.q.scale.tolist() == [2, 2]
    assert torch.equal(again.helper.inside.get_state(), algo.helper.inside.get_state())


def test_what_was_declared_only_after_a_checkpoint_had_not_changed_before_it(tmp_path: Path) -> None:
    save(tmp_path, *holding("memory", Counter()), Progress())
    algo, env = holding("memory", Counter(), saved=("memory",))
    restore(tmp_path, algo, env)
    assert algo.memory == Counter()


@pytest.mark.parametrize("key", ["memory", "later"])
@pytest.mark.parametrize("what", LOST)
def test_state_that_came_only_later_is_refused_when_the_run_is_saved(what: str, key: str, tmp_path: Path) -> None:
    algo, env = holding("memory", None)
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    vars(algo)[key] = LOST[what]()
    with pytest.raises(UserError, match=rf"^Mine\.{key} looks like state \(\w+\) and would not be saved"):
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
