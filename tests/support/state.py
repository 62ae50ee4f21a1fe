"""Algorithms that hold state of every kind, and what may happen to it."""

import itertools
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlkit.settings import plugins
from support.fakes import environment


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


def turn(x: Any) -> None:
    """The same numbers from the last to the first, in place."""
    x[:] = x[list(range(len(x) - 1, -1, -1))]


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
    "a helper with a tensor in another order": (lambda: Helper(torch.arange(2.0**19)), lambda x: turn(x.inside)),
    "a helper with an array in another order": (lambda: Helper(np.arange(2.0**19)), lambda x: turn(x.inside)),
    "a helper with a strided tensor": (lambda: Helper(torch.zeros(9)[::2]), lambda x: x.inside.add_(1)),
    "a helper with bfloat16": (lambda: Helper(torch.zeros(3).bfloat16()), lambda x: x.inside.add_(1)),
    "a helper with a masked array": (
        lambda: Helper(np.ma.array([1, 2])),
        lambda x: x.inside.__setitem__(0, np.ma.masked),
    ),
    "a helper with an array of objects": (
        lambda: Helper(np.array([Helper()])),
        lambda x: setattr(x.inside[0], "inside", 1),
    ),
    "a helper with bytes": (lambda: Helper(bytearray(b"ab")), lambda x: x.inside.reverse()),
    "a helper in a set": (lambda: Helper({Helper()}), lambda x: setattr(next(iter(x.inside)), "inside", 1)),
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


BECOME: dict[str, tuple[Any, Any]] = {  # numbers of one kind that become numbers of another
    "a tensor": (0.0, torch.tensor(0.3)),
    "an integer tensor": (0, torch.tensor(3)),
    "a number of NumPy": (0.0, np.float32(0.3)),
    "a truth of NumPy": (False, np.bool_(True)),
    "an array without axes": (0.0, np.array(0.3)),
    "a number of NumPy, from an array": (np.array(0.0), np.float64(0.3)),
    "a number, from a tensor": (torch.tensor(0.0), 0.3),
    "a tensor, from a number of NumPy": (np.float64(0), torch.tensor(0.3)),
    "a tensor of more digits": (torch.tensor(0.0), torch.tensor(0.3, dtype=torch.float64)),
}


def optimizer(*groups: torch.Tensor) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [torch.nn.Parameter(x)]} for x in groups], lr=0.1)


def parent() -> np.random.Generator:
    found = np.random.default_rng(0)
    found.spawn(2)
    return found


OTHER: dict[str, tuple[Any, Any, str, str]] = {  # what could not be put back, and the words for both
    "a shape": (torch.zeros(2), torch.zeros(3), r"a tensor of float32 and shape \(2,\)", r"a .* and shape \(3,\)"),
    "a precision": (torch.zeros(2), torch.zeros(2).double(), "a tensor of float32 .*", "a tensor of float64 .*"),
    "an array": (torch.zeros(2), np.zeros(2, np.float32), "a tensor of .*", "an array of float32 .*"),
    "a tensor with axes": (0.0, torch.zeros(2), "a number", "a tensor .*"),
    "a tuple": ([1], (1,), "a list", "a tuple"),
    "columns": (np.eye(2), np.asfortranarray(np.eye(2)), "an array .*", r"an array .* order \[1, 0\] in memory .*"),
    "a longer queue": (deque(maxlen=2), deque(maxlen=3), "a deque of at most 2", "a deque of at most 3"),
    "a dictionary": (Counter(), {}, "a Counter", "a dict"),
    "a text": (1, "a", "a number", "a str"),
    "a generator with children": (np.random.default_rng(0), parent(), "a Generator", "a Generator that has spawned 2"),
    "another generator": (np.random.default_rng(0), random.Random(0), "a Generator", "a Random"),
    "something": (None, 3, "None", "a number"),
    "a module": (None, torch.nn.Linear(2, 2), "None", "a Linear .*"),
    "nothing": (3, None, "a number", "None"),
    "a pool that grows": (
        torch.nn.ModuleList(),
        torch.nn.ModuleList([torch.nn.Linear(2, 3)]),
        "a ModuleList of 0 tensors, 0 numbers",
        "a ModuleList of 2 tensors, 9 numbers",
    ),
    "a wider module": (torch.nn.Linear(2, 2), torch.nn.Linear(2, 3), r"a .* of 2 .*, 6 numbers", r"a .*, 9 numbers"),
    "what is unfrozen": (
        optimizer(torch.zeros(2)),
        optimizer(torch.zeros(2), torch.zeros(3)),
        "a SGD with groups of 1 parameters",
        r"a SGD with groups of 1 \+ 1 parameters",
    ),
}


def holding(key: str, value: Any, saved: tuple[str, ...] = ()) -> tuple[Any, Any]:
    """Q-learning that holds something more."""
    module = plugins.load("algorithms", "q_learning")
    env = environment("frozenlake", rows=2)
    kind = type("Mine", (module.make,), {"saved": (*module.make.saved, *saved)})
    algo = kind(module.Config(), env, None)
    vars(algo)[key] = value
    return algo, env
