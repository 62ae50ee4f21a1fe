"""What optimizers keep for each parameter comes back as it was."""

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.resuming import same, tensors
from support.state import holding

from rlkit.progress import Progress, restore, save


def learn(optimizer: torch.optim.Optimizer, steps: int) -> torch.Tensor:
    (weight,) = optimizer.param_groups[0]["params"]
    for _ in range(steps):
        weight.grad = torch.cos(weight.detach())
        optimizer.step()
    moved: torch.Tensor = weight.detach()
    return moved


def goes_on(make: Callable[[list[torch.Tensor]], Any], dtype: torch.dtype, folder: Path) -> None:
    """Three steps, a checkpoint, and three more, by the same optimizer and by a new one."""
    weights = [torch.linspace(-1, 1, 5, dtype=dtype).requires_grad_() for _ in range(2)]
    one, two = (make([weight]) for weight in weights)
    algo, env = holding("second", one, saved=("second",))
    weights[1].data.copy_(learn(one, 3))
    save(folder, algo, env, Progress())
    restore(folder, *holding("second", two, saved=("second",)))
    assert same(two.state_dict(), one.state_dict())
    assert torch.equal(learn(one, 3), learn(two, 3))


OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_of_torch_goes_on_as_if_it_had_not_stopped(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Some keep a number in float32 for each parameter, whatever that is of."""
    goes_on(lambda weights: getattr(torch.optim, name)(weights, lr=0.01), dtype, tmp_path)


class Around(torch.optim.Optimizer):
    """Steps the optimizer inside every second time, and has no state but that of it."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.calls = inner, 0
        self.param_groups, self.defaults = inner.param_groups, inner.defaults

    def step(self, closure: Any = None) -> None:
        self.calls += 1
        if self.calls % 2:
            self.inner.step()

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict(), "calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]
        self.inner.load_state_dict(state["inner"])
        self.param_groups = self.inner.param_groups


class Flat(Around):
    """Has a state of torch's form."""

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict() | {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        inner = {key: x for key, x in state.items() if key != "calls"}
        super().load_state_dict({"inner": inner, "calls": state["calls"]})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kinds", [(Around,), (Flat,), (Around, Flat), (Around, Around)])
def test_an_optimizer_inside_another_goes_on_too(
    kinds: tuple[type[Around], ...], dtype: torch.dtype, tmp_path: Path
) -> None:
    def make(weights: list[torch.Tensor]) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = torch.optim.NAdam(weights)
        for kind in reversed(kinds):
            made = kind(made)
        return made

    goes_on(make, dtype, tmp_path)


class Keeping(torch.optim.Optimizer):
    """Keeps something of its own for each parameter, and moves it by that."""

    def __init__(self, weights: list[torch.Tensor], make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__(weights, {})
        self.make = make

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        held: dict[Any, Any] = self.state
        for p in self.param_groups[0]["params"]:
            held[p] = held.get(p) if p in held else self.make(p)
            for x in tensors(held[p]).values():
                x += (0.1 * p.sum()).to(x.dtype)
                p += 0.01 * x.mean(dtype=torch.complex128).real.to(p.dtype)


KEPT: dict[str, Callable[[torch.Tensor], Any]] = {
    "a tensor": torch.zeros_like,
    "a list": lambda p: [torch.zeros_like(p), 3],
    "a tuple": lambda p: (torch.zeros_like(p), None),
    "numbers in another type": lambda p: {"m": torch.zeros(1, dtype=torch.float64)},
    "moments in another type": lambda p: {"m": torch.zeros_like(p, dtype=torch.float32)},
    "a count": lambda p: {"n": torch.zeros((), dtype=torch.int64)},
    "numbers in a dictionary": lambda p: {"all": {"m": torch.zeros(2, dtype=torch.float64), "of": "x"}},
    "complex numbers": lambda p: {"m": torch.zeros(2, dtype=torch.complex64)},
    "tensors in a list": lambda p: {"past": [torch.zeros(3, dtype=torch.float64)]},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("what", KEPT)
def test_an_own_optimizer_goes_on_with_what_it_keeps(what: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """torch turns the numbers of an optimizer into the type of the parameter."""
    goes_on(lambda weights: Keeping(weights, KEPT[what]), dtype, tmp_path)


class Averaging(torch.optim.Optimizer):
    """Averages the last two gradients, which a checkpoint cannot hold as they are kept."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        super().__init__(weights, {})
        self.register_state_dict_post_hook(listed)
        self.register_load_state_dict_post_hook(queued)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            past = self.state[p].setdefault("past", deque(maxlen=2))
            past.append(p.grad.clone())
            p -= 0.1 * sum(past) / len(past)


def listed(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "state": {number: {"past": list(x["past"])} for number, x in state["state"].items()}}


def queued(optimizer: torch.optim.Optimizer) -> None:
    for x in optimizer.state.values():
        x["past"] = deque(x["past"], maxlen=2)


class Later(Averaging):
    """Puts its queues back where torch hands it what was saved."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        super().__init__(weights)
        self._optimizer_load_state_dict_post_hooks.clear()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        queued(self)


@pytest.mark.parametrize("kind", [Averaging, Later])
def test_what_an_optimizer_makes_of_its_state_stays(kind: type[Averaging], tmp_path: Path) -> None:
    goes_on(kind, torch.float32, tmp_path)


class Counting(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        held: dict[Any, Any] = self.state
        held["all"]["steps"] = held["all"].get("steps", 0) + 1
        super().step(closure)


def test_an_optimizer_that_notes_something_beside_its_parameters_goes_on(tmp_path: Path) -> None:
    goes_on(lambda weights: Counting(weights, lr=0.1, momentum=0.9), torch.float32, tmp_path)


class Adam(torch.optim.Adam):
    """Counts its steps by a plain number."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            x = self.state[p] or {"step": 0, "exp_avg": torch.zeros_like(p)}
            x["step"] += 1
            x["exp_avg"].lerp_(p.grad, 0.1)
            p -= 0.1 * x["exp_avg"] / (1 - 0.9 ** x["step"])
            self.state[p] = x


class Counted(Adam):
    """Counts by a number of another kind."""

    def __init__(self, weights: list[torch.Tensor], zero: Any, fused: bool = False) -> None:
        super().__init__(weights, fused=fused)
        for p in weights:
            self.state[p] = {"step": zero, "exp_avg": torch.zeros_like(p)}


class Window(torch.optim.RMSprop):
    """Averages the last four gradients, each in a row of its own."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            x = self.state[p] or {"step": 0, "past": torch.zeros(4, *p.shape, dtype=p.dtype)}
            x["past"][x["step"] % 4] = p.grad
            x["step"] += 1
            p -= 0.1 * x["past"][: min(x["step"], 4)].mean(0)
            self.state[p] = x


class Falling(torch.optim.SGD):
    """Steps less far each time; the count is a number or a tensor of whole numbers."""

    def __init__(self, weights: list[torch.Tensor], zero: Any) -> None:
        super().__init__(weights, lr=0.1, momentum=0.9)
        self.zero = zero

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for p in self.param_groups[0]["params"]:
            self.state[p]["step"] = self.state[p].get("step", self.zero) + 1
            p -= 0.1 * p / self.state[p]["step"]


COUNTING: dict[str, Callable[[list[torch.Tensor]], torch.optim.Optimizer]] = {
    "an Adam with a number": lambda weights: Adam(weights),
    "an Adam with a number of NumPy": lambda weights: Counted(weights, np.int64(0)),
    "an Adam with a precise count": lambda weights: Counted(weights, torch.tensor(0.0, dtype=torch.float64), True),
    "an RMSprop with a number that is an index": lambda weights: Window(weights),
    "an SGD with a number": lambda weights: Falling(weights, 0),
    "an SGD with a whole tensor": lambda weights: Falling(weights, torch.tensor(0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("what", COUNTING)
def test_an_own_optimizer_counts_its_steps_as_it_likes(what: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """torch's Adam makes a tensor of float32 of a number, which is another power of a decay, and no index."""
    goes_on(COUNTING[what], dtype, tmp_path)


OPTIONS: dict[str, dict[str, Any]] = {
    "a list as in a file": {"betas": [0.8, 0.95]},
    "a fused kernel": {"fused": True},
    "no kernel of several tensors": {"foreach": False},
}


@pytest.mark.parametrize("what", OPTIONS)
def test_one_group_of_an_optimizer_may_have_options_of_its_own(what: str, tmp_path: Path) -> None:
    goes_on(lambda weights: torch.optim.AdamW([{"params": weights, **OPTIONS[what]}]), torch.float32, tmp_path)


CHANGED: dict[str, dict[str, Any]] = {
    "a tensor": {"lr": torch.tensor(0.03)},
    "a number of NumPy": {"lr": np.float32(0.03)},
    "an option that was open": {"foreach": False},
    "a list": {"betas": [0.8, 0.95]},
}


@pytest.mark.parametrize("what", CHANGED)
def test_options_may_change_while_a_run_goes_on(what: str, tmp_path: Path) -> None:
    made = []

    def make(weights: list[torch.Tensor]) -> torch.optim.Optimizer:
        made.append(torch.optim.AdamW(weights))
        if len(made) == 1:
            made[0].param_groups[0].update(CHANGED[what])
        return made[-1]

    goes_on(make, torch.float32, tmp_path)


def test_an_optimizer_may_be_made_with_any_number_that_torch_takes(tmp_path: Path) -> None:
    goes_on(lambda weights: torch.optim.SGD(weights, momentum=0.9, dampening=-0.1), torch.float32, tmp_path)
    made = []

    def later(weights: list[torch.Tensor]) -> torch.optim.Optimizer:
        made.append(torch.optim.SGD(weights, momentum=0.9, foreach=True))
        if len(made) == 1:
            made[0].param_groups[0].update(dampening=-0.25, foreach=None)
        return made[-1]

    goes_on(later, torch.float32, tmp_path)


class Bounded(torch.optim.SGD):
    """Has options without a bound."""

    def __init__(self, weights: list[torch.Tensor]) -> None:
        super().__init__(weights, lr=0.1)
        self.defaults |= {"clip": math.inf, "last": -1}
        self.param_groups[0].update(clip=math.inf, last=-1)


def test_options_of_an_own_optimizer_may_be_any_numbers(tmp_path: Path) -> None:
    goes_on(Bounded, torch.float32, tmp_path)
