"""What an algorithm declares is saved, whatever it is, and comes back."""

import random
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes import RaggedText, algorithm, cartpole, environment, iterate, on_text, pendulum
from support.resuming import same
from support.state import BECOME, CHANGING, REPLACED, Helper, add, holding

from rlkit import policies
from rlkit.api import UserError
from rlkit.fingerprint import digest
from rlkit.held import check_saved, fingerprints
from rlkit.progress import Progress, restore, save
from rlkit.recording import checkpoint
from rlkit.recording.undo import noted
from rlkit.settings import plugins

TABLES = ("value_iteration", "policy_iteration", "monte_carlo", "td", "q_learning", "sarsa", "expected_sarsa")


EVERYTHING: dict[str, dict[str, Any]] = {  # the keys that give an algorithm something more to save
    "a2c": {"normalize_reward": True},
    "dapo": {"kl_coef": 0.1},
    "dqn": {"hold": 5, "n_step": 3, "prioritized": True, "warmup_steps": 8, "capacity": 64, "batch_size": 4},
    "grpo": {"kl_coef": 0.1},
    "ppo": {"kl_coef": 0.1, "kl_target": 1.0, "normalize_reward": True, "horizon": 8},
    "sac": {"n_step": 3, "prioritized": True, "warmup_steps": 8, "capacity": 64, "batch_size": 4},
    "td": {"n": 3},
    "td3": {"n_step": 3, "prioritized": True, "warmup_steps": 8, "capacity": 64, "batch_size": 4},
}


def made(name: str) -> tuple[Any, Any]:
    """An algorithm with all that it can hold, on an environment that suits it."""
    config = EVERYTHING.get(name, {})
    if name in TABLES:
        env: Any = environment("frozenlake", rows=2)
        return algorithm(name, env, **config), env
    if name in ("sft", "reward_model"):
        env = RaggedText(rows=3)
        env.state_dict, env.load_state_dict = lambda: {}, lambda state: None
        return on_text(name, env, **config), env
    env = pendulum(3, step_limit=40) if name == "td3" else cartpole(3, step_limit=40)
    return algorithm(name, env, policies.Network(normalize=True), **config), env


@pytest.mark.parametrize("name", plugins.names("algorithms"))
def test_what_an_algorithm_of_the_project_holds_is_saved_and_put_back(name: str, tmp_path: Path) -> None:
    algo, env = made(name)
    check_saved(algo, env)
    progress = Progress(held=fingerprints(algo, env))
    for _ in range(5):
        iterate(algo, env)
    save(tmp_path, algo, env, progress)
    again, second = made(name)
    restore(tmp_path, again, second)
    (tmp_path / "again").mkdir()
    save(tmp_path / "again", again, second, progress)
    states = [checkpoint.load(folder) for folder in (tmp_path, tmp_path / "again")]
    for key in ("parts", "numbers", "generators", "env"):
        assert same(states[0][key], states[1][key]), key


def test_everything_is_really_held() -> None:
    for name in EVERYTHING:
        algo = made(name)[0]
        assert all(attrgetter(key)(algo) is not None for key in algo.saved), name


def test_a_generator_of_its_own_needs_no_declaration(tmp_path: Path) -> None:
    algo, env = holding("luck", torch.Generator().manual_seed(3))
    check_saved(algo, env)
    save(tmp_path, algo, env, Progress())
    expected = torch.rand(5, generator=algo.luck)
    again, second = holding("luck", torch.Generator())
    restore(tmp_path, again, second)
    assert torch.equal(torch.rand(5, generator=again.luck), expected)


def test_what_is_declared_is_saved_whatever_it_is(tmp_path: Path) -> None:
    algo, env = holding("memory", torch.nn.Linear(2, 2), saved=("memory", "count"))
    algo.count = 7
    check_saved(algo, env)
    save(tmp_path, algo, env, Progress())
    again, second = holding("memory", torch.nn.Linear(2, 2), saved=("memory", "count"))
    again.count = 0
    restore(tmp_path, again, second)
    assert torch.equal(again.memory.weight, algo.memory.weight) and again.count == 7


@pytest.mark.parametrize("learns", [True, False])
def test_whether_a_tensor_by_itself_learns_comes_back(learns: bool, tmp_path: Path) -> None:
    held = [torch.ones(2, requires_grad=not learns) for _ in range(2)]
    algo, env = holding("memory", held[0], saved=("memory",))
    held[0].requires_grad_(learns)
    save(tmp_path, algo, env, Progress())
    restore(tmp_path, *holding("memory", held[1], saved=("memory",)))
    assert held[1].requires_grad == learns


@pytest.mark.parametrize("learns", [True, False])
def test_which_parameters_learn_comes_back(learns: bool, tmp_path: Path) -> None:
    """Layers may be frozen, or no longer so, after some updates."""
    algo, env = holding("memory", torch.nn.Linear(2, 2).requires_grad_(not learns), saved=("memory",))
    algo.memory.weight.requires_grad_(learns)
    save(tmp_path, algo, env, Progress())
    again, second = holding("memory", torch.nn.Linear(2, 2).requires_grad_(not learns), saved=("memory",))
    restore(tmp_path, again, second)
    assert [p.requires_grad for p in again.memory.parameters()] == [learns, not learns]


def test_a_declared_tensor_is_put_back_in_place(tmp_path: Path) -> None:
    algo, env = holding("memory", torch.nn.Parameter(torch.ones(3)), saved=("memory",))
    save(tmp_path, algo, env, Progress())
    weight = torch.nn.Parameter(torch.zeros(3))
    again, second = holding("memory", weight, saved=("memory",))
    restore(tmp_path, again, second)
    assert again.memory is weight and weight.tolist() == [1.0, 1.0, 1.0]  # an optimizer may hold it


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
    check_saved(algo, env)
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


@pytest.mark.parametrize("what", BECOME)
def test_a_number_may_become_a_number_of_another_kind(what: str, tmp_path: Path) -> None:
    first, then = BECOME[what]
    algo, env = holding("memory", deepcopy(first), saved=("memory",))
    progress = Progress(held=fingerprints(algo, env))
    algo.memory = then
    save(tmp_path, algo, env, progress)
    again, second = holding("memory", deepcopy(first), saved=("memory",))
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


@pytest.mark.parametrize("name", ["actor", "actor.1", "actor.1.weight", "normalizer", "spread", "seen"])
def test_a_network_a_parameter_and_a_buffer_of_the_policy_may_be_named(name: str, tmp_path: Path) -> None:
    def made(start: float) -> tuple[Any, Any]:
        module, env = plugins.load("algorithms", "ppo"), cartpole(2)
        kind = type("Mine", (module.make,), {"saved": (*module.make.saved, f"policy.{name}")})
        algo = kind(module.Config(horizon=8), env, policies.Network(normalize=True))
        algo.policy.spread = torch.nn.Parameter(torch.full((2,), start))
        algo.policy.register_buffer("seen", torch.full((2,), start), persistent=False)
        return algo, env

    (algo, env), (again, second) = made(1.0), made(0.0)
    check_saved(algo, env)
    iterate(algo, env)
    algo.policy.refresh()
    with torch.no_grad():
        algo.policy.actor[1].weight.add_(1)
    save(tmp_path, algo, env, Progress())
    named = attrgetter(name)(again.policy)
    restore(tmp_path, again, second)
    assert attrgetter(name)(again.policy) is named, "others hold it, such as the optimizer"
    found, wanted = (
        x.state_dict() if isinstance(x, torch.nn.Module) else x for x in (named, attrgetter(name)(algo.policy))
    )
    assert same(found, wanted)


@pytest.mark.parametrize("saved", [(), ("policy.actor", "optimizer", "buffer"), ("optimizer", "buffer")])
def test_without_the_policy_there_is_nothing_to_measure(saved: tuple[str, ...]) -> None:
    module, env = plugins.load("algorithms", "ppo"), cartpole(2)
    algo = type("Mine", (module.make,), {"saved": saved})(module.Config(horizon=8), env, policies.Network())
    with pytest.raises(UserError, match=r"^Mine\.saved lacks 'policy', which is all .*: add it, as in saved = \(\*Alg"):
        check_saved(algo, env)


def test_a_checkpoint_without_what_an_algorithm_needs_is_refused(tmp_path: Path) -> None:
    save(tmp_path, *holding("memory", None), Progress())
    algo, env = holding("memory", torch.nn.Linear(2, 2), saved=("memory",))
    with pytest.raises(UserError, match=r"its checkpoint has no 'memory', which Mine needs; start a new run"):
        restore(tmp_path, algo, env)


@pytest.mark.parametrize("value", [torch.zeros(2), np.zeros(2), [1.0]], ids=["a tensor", "an array", "a list"])
def test_one_object_under_two_declared_names_is_refused_at_the_start(value: Any) -> None:
    algo, env = holding("memory", value, saved=("memory", "best"))
    algo.best = algo.memory
    with pytest.raises(UserError, match="saved names 'memory' and 'best', which are one object"):
        check_saved(algo, env, new=True)
    check_saved(algo, env)  # it may become one later, and a run that began so goes on
    algo.best = deepcopy(value)
    check_saved(algo, env, new=True)


def begin() -> dict[str, Any]:
    return {"pool": [], "queue": deque(), "table": {}, "now": [], "mean": torch.zeros(2), "best": [], "last": {}}


def grow(algo: Any) -> None:
    """What stands in several places at the end."""
    weights, steps = {"w": torch.ones(2)}, np.zeros(2)
    algo.pool += [weights, weights, algo.now, (algo.mean, [algo.mean])]
    algo.queue += [(0.5, steps), (0.7, steps)]
    algo.table |= {"a": weights["w"], 3: {"b": algo.pool[0]}, "pool": algo.now}
    algo.last = algo.pool[0]
    algo.best = algo.now


def change(algo: Any) -> None:
    algo.now.append(1)
    algo.mean += 2
    algo.pool[0]["w"] += 3
    algo.pool[0]["x"] = 4
    algo.queue[0][1][0] = 5


@pytest.mark.parametrize("undone", [False, True], ids=["resumed", "a reward failed"])
def test_one_object_in_several_places_is_one_object_again(tmp_path: Path, undone: bool) -> None:
    def made() -> tuple[Any, Any]:
        algo, env = holding("pool", [], saved=tuple(begin()))
        vars(algo).update(begin())
        return algo, env

    algo, env = made()
    grow(algo)
    again, second = algo, env
    if undone:
        env.kind = "text"
        go_back = noted(algo, env)
        change(algo)
        algo.now, algo.last, algo.mean = [7], {}, torch.ones(2)
        go_back()
    for place in ("one", "two") if not undone else ():
        (tmp_path / place).mkdir()
        save(tmp_path / place, again, second, Progress())
        again, second = made()
        mean = again.mean
        restore(tmp_path / place, again, second)
        assert again.mean is mean, "an optimizer may hold it"
    change(again)
    w = torch.full((2,), 4.0)
    weights, now, mean = {"w": w, "x": 4}, [1], torch.full((2,), 2.0)
    expected = {
        "pool": [weights, weights, now, (mean, [mean])],
        "queue": deque([(0.5, np.array([5.0, 0])), (0.7, np.array([5.0, 0]))]),
        "table": {"a": w, 3: {"b": weights}, "pool": now},
        "now": now,
        "mean": mean,
        "best": now,
        "last": weights,
    }
    for key, x in expected.items():
        found = vars(again)[key]
        assert type(found) is type(x) and (same([*found], [*x]) if key == "queue" else same(found, x)), key


@pytest.mark.parametrize("kind", ["of an optimizer", "of the policy"])
def test_a_list_of_what_is_learned_is_refused_at_the_start(kind: str) -> None:
    algo, env = holding("alphas", [torch.nn.Parameter(torch.zeros(2))], saved=("alphas", "mover"))
    algo.mover = torch.optim.SGD(algo.alphas, lr=0.1)
    if kind == "of the policy":
        algo.alphas = {"a": [1, *algo.policy.parameters()]}
    words = "saved names 'alphas', a (list|dict) with tensors that an optimizer or a module holds, too: resume would"
    with pytest.raises(UserError, match=words):
        check_saved(algo, env, new=True)
    check_saved(algo, env)  # a run that began so goes on
    algo.alphas = torch.nn.ParameterList(algo.mover.param_groups[0]["params"])
    check_saved(algo, env, new=True)


def test_a_list_of_tensors_that_learn_by_hand_is_refused_at_the_start() -> None:
    algo, env = holding("alphas", {"a": [torch.zeros(2, requires_grad=True)]}, saved=("alphas",))
    with pytest.raises(UserError, match="saved names 'alphas', a dict with tensors that learn: resume would"):
        check_saved(algo, env, new=True)
    check_saved(algo, env)  # a run that began so goes on
    algo.alphas = {"a": [torch.zeros(2)]}
    check_saved(algo, env, new=True)
