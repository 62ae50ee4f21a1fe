"""What an algorithm may hold without a word, since nothing of it is lost; and state in places seldom looked at."""

import logging
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fakes import cartpole, iterate
from torch import nn

from rlkit import policies
from rlkit.api import UserError
from rlkit.held import check_saved, fingerprints
from rlkit.progress import Progress, restore, save
from rlkit.settings import plugins


def holding(make: Callable[[Any], Any], saved: tuple[str, ...] = ()) -> tuple[Any, Any]:
    """PPO that holds something more, under `mine`."""
    module = plugins.load("algorithms", "ppo")
    kind = type("Mine", (module.make,), {"saved": (*module.make.saved, *saved)})
    env = cartpole(2)
    algo = kind(module.Config(horizon=8), env, policies.Network())
    algo.mine = make(algo)
    return algo, env


def begun(make: Callable[[Any], Any]) -> tuple[Any, Any, Progress]:
    """The same, where a run of it begins."""
    algo, env = holding(make)
    check_saved(algo, env)
    return algo, env, Progress(held=fingerprints(algo, env))


def nothing(_: Any) -> None:
    return None


def a_logger(_: Any) -> logging.Logger:
    return logging.getLogger("mine.of.this.test")


def a_file(_: Any) -> Any:
    return Path(__file__).open(encoding="utf-8")


HARMLESS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], object]]] = {  # what it is, and what happens to it
    "a logger": (a_logger, lambda x: (x.debug("step"), logging.getLogger("another").info("step"))),
    "an adapter of a logger": (lambda algo: logging.LoggerAdapter(a_logger(algo)), lambda x: x.debug("step")),
    "an open file": (a_file, lambda x: x.readline()),
    "a compiled function": (lambda _: torch.compile(torch.square, backend="eager"), lambda x: x(torch.ones(2))),
    "a loss of torch": (lambda _: nn.SmoothL1Loss(), lambda x: x(torch.ones(2), torch.zeros(2))),
    "modules without parameters": (lambda _: nn.Sequential(nn.ReLU(), nn.Tanh()), lambda x: x(torch.ones(2))),
    "a class of modules": (lambda _: nn.Linear, lambda x: x(2, 2)),
    "a second name of the policy": (lambda algo: algo.policy, lambda x: None),
    "a part of the policy, in a list": (lambda algo: [algo.policy.actor[0]], lambda x: None),
    "the parameters of the policy": (lambda algo: list(algo.policy.parameters()), lambda x: None),
    "the parameters of the policy by name": (lambda algo: dict(algo.policy.named_parameters()), lambda x: None),
    "optimizers in a list": (lambda algo: [algo.optimizer], lambda x: None),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_loses_nothing_is_not_refused(what: str, tmp_path: Path) -> None:
    make, use = HARMLESS[what]
    algo, env, progress = begun(make)
    iterate(algo, env)
    use(algo.mine)
    save(tmp_path, algo, env, progress)


def test_a_second_name_of_the_policy_sees_what_is_put_back(tmp_path: Path) -> None:
    algo, env = holding(lambda algo: list(algo.policy.parameters()))
    iterate(algo, env)
    save(tmp_path, algo, env, Progress())
    again, second = holding(lambda algo: list(algo.policy.parameters()))
    restore(tmp_path, again, second)
    assert all(torch.equal(x, y) for x, y in zip(algo.mine, again.mine, strict=True))


HELD: dict[str, Callable[[Any, Any], Any]] = {  # of what the loop saves itself
    "the environment": lambda algo, env: env,
    "the environment, in a dictionary": lambda algo, env: {"train": env},
    "a method of the environment": lambda algo, env: env.evaluate,
    "a generator of the policy, in a list": lambda algo, env: [algo.policy.generator],
    "the algorithm": lambda algo, env: [algo],
}


@pytest.mark.parametrize("what", HELD)
def test_what_the_loop_saves_needs_no_name(what: str, tmp_path: Path) -> None:
    algo, env = holding(nothing)
    algo.mine = HELD[what](algo, env)
    check_saved(algo, env)
    progress = Progress(held=fingerprints(algo, env))
    iterate(algo, env)
    save(tmp_path, algo, env, progress)


def test_another_environment_is_state() -> None:
    algo, env = holding(lambda _: cartpole(2))
    with pytest.raises(UserError, match=r"^Mine\.mine looks like state \(ControlEnv\)"):
        check_saved(algo, env)


def test_a_module_may_have_a_state_dict_of_its_own_form() -> None:
    class Brief(nn.Linear):
        def state_dict(self) -> dict[str, Any]:  # type: ignore[override]  # as people write it
            return {"weight": self.weight, "bias": self.bias}

    algo, env = holding(lambda _: Brief(2, 2), saved=("mine",))
    algo.other = [algo.mine.weight]
    check_saved(algo, env)
    assert fingerprints(algo, env)


def test_a_second_name_of_a_tuple_is_refused_since_it_would_keep_what_was() -> None:
    algo, env = holding(lambda _: (torch.zeros(2),), saved=("mine",))
    check_saved(algo, env)
    algo.other = algo.mine
    with pytest.raises(UserError, match=r"^Mine\.other looks like state \(tuple\)"):
        check_saved(algo, env)


def appending(_: Any) -> Callable[[], None]:
    def step(seen: list[int] = []) -> None:  # noqa: B006  # that is the point
        seen.append(1)

    return step


def with_attribute(_: Any) -> Callable[[], None]:
    def step() -> None:
        vars(step)["count"] = vars(step).get("count", 0) + 1

    return step


def add(x: Any) -> None:
    x[0] += 1


HIDDEN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], object]]] = {
    "the default of a function's argument": (appending, lambda x: x()),
    "an attribute of a function": (with_attribute, lambda x: x()),
    "an argument of a partial": (lambda _: partial(list.append, []), lambda x: x(1)),
    "bytes that change": (lambda _: bytearray(2), add),
    "an array of Python": (lambda _: array("d", [0.0]), add),
    "a module without parameters": (lambda _: nn.Dropout(), lambda x: setattr(x, "p", 0.1)),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_state_in_an_odd_place_is_refused_when_the_run_is_saved(what: str, tmp_path: Path) -> None:
    make, use = HIDDEN[what]
    algo, env, progress = begun(make)
    save(tmp_path, algo, env, progress)
    use(algo.mine)
    with pytest.raises(UserError, match=r"^Mine\.mine has changed since the run began and would not be saved: "):
        save(tmp_path, algo, env, progress)


def test_what_a_hook_remembers_is_refused_when_the_run_is_saved(tmp_path: Path) -> None:
    algo, env = holding(nothing)
    calls: list[float] = [0.0]

    def hook(module: nn.Module, given: Any, found: torch.Tensor) -> torch.Tensor:
        calls[0] += 1.0
        return found + calls[0] / 1000

    algo.policy.actor[0].register_forward_hook(hook)
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    algo.policy.actor(torch.zeros(1, 4))
    with pytest.raises(UserError, match=r"^Mine\.policy\.actor\.0\._forward_hooks has changed since the run began"):
        save(tmp_path, algo, env, progress)


def test_what_a_class_gathers_is_refused_when_the_run_is_saved(tmp_path: Path) -> None:
    algo, env = holding(nothing)
    type(algo).seen = []
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    algo.seen.append(1)
    with pytest.raises(UserError, match=r"^Mine\.seen has changed since the run began and would not be saved: "):
        save(tmp_path, algo, env, progress)


def test_a_number_of_an_optimizer_that_its_state_leaves_out_is_refused(tmp_path: Path) -> None:
    algo, env = holding(nothing)
    algo.optimizer.steps_of_mine = 0
    torch.optim.lr_scheduler.LambdaLR(algo.optimizer, lambda step: 0.9**step)  # leaves marks of its own
    progress = Progress(held=fingerprints(algo, env))
    iterate(algo, env)
    save(tmp_path, algo, env, progress)
    algo.optimizer.steps_of_mine += 1
    with pytest.raises(UserError, match=r"^Mine\.optimizer\.steps_of_mine has changed since the run began"):
        save(tmp_path, algo, env, progress)
