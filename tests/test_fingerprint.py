"""A fingerprint tells every change of what it examines, and nothing else."""

import decimal
import itertools
import operator
import random
import tracemalloc
from collections.abc import Callable
from copy import deepcopy
from datetime import date, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.state import Counts, Helper, counting
from tensordict import TensorDict

from rlkit import fingerprint, outside
from rlkit.fingerprint import digest


@pytest.mark.parametrize(
    "x", [np.ones(2**24, np.uint8), torch.ones(2**22), bytes(2**24)], ids=lambda x: type(x).__name__
)
def test_a_fingerprint_of_much_needs_no_memory(x: Any) -> None:
    tracemalloc.start()
    digest([x])
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_what_a_tensordict_notes_of_its_use_is_no_change_and_what_it_holds_is() -> None:
    x = TensorDict({"a": torch.zeros(2), "b": {"c": torch.ones(2)}}, [2])
    before = digest([x])
    with x.lock_(), x.unlock_():  # notes the operations, and how to undo them
        assert vars(x)["_last_op_queue"]
    assert digest([x]) == before
    x["b", "c"].add_(1)
    assert digest([x]) != before


ODD = [
    np.zeros((0, 3)),
    np.array("text"),
    np.array(["2020-01-01"], "datetime64[D]"),
    np.array([(1, 2.0)], "i4,f8"),
    np.asfortranarray(np.eye(3)),
    np.float32(1),
    torch.zeros(0),
    torch.tensor([1j]).conj(),
    torch.zeros(2).to_sparse(),
    torch.zeros(2, device="meta"),
]


@pytest.mark.parametrize("which", range(len(ODD)))
def test_arrays_of_every_kind_have_a_fingerprint(which: int) -> None:
    assert digest(ODD[which]) == digest(ODD[which])


def test_a_conjugate_and_a_dtype_count() -> None:
    x = torch.tensor([1j])
    assert digest(x) != digest(x.conj()) and digest(np.zeros(2, np.int32)) != digest(np.zeros(2, np.float32))


def test_a_set_of_what_refers_back_has_a_fingerprint() -> None:
    nodes = [Helper() for _ in range(20)]
    for node in nodes:
        node.inside = set(nodes)
    before = digest(nodes[0])
    assert digest(nodes[0]) == before
    nodes[7].inside.add(3)
    assert digest(nodes[0]) != before


def test_equal_values_may_be_one_object_or_several() -> None:
    one = timedelta(1)
    assert digest([one, one]) == digest([timedelta(1), timedelta(hours=24)]) != digest([one, timedelta(2)])


def test_the_order_of_a_set_does_not_count() -> None:
    members: list[Any] = [-1, -2, "a", (1, "b"), frozenset([2]), None]
    there = set()
    for member in reversed(members):
        there.add(member)
    assert digest(set(members)) == digest(there) != digest(set(members[1:]))


def answer() -> int:
    return 1


def another() -> int:
    return 1


def within(value: int) -> Callable[[], int]:
    return lambda: value


class Doing:
    def one(self) -> float:
        return 0.3

    def two(self) -> float:
        return 0.3


DOING = Doing()
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "functions": (answer, another),
    "lambdas": (lambda: 0.3, lambda: 0.7),
    "lambdas that call others": (lambda: answer(), lambda: another()),  # their names are the matter
    "functions with others inside": (lambda: [lambda: 1], lambda: [lambda: 2]),
    "functions that hold values": (within(1), within(2)),
    "functions in a partial": (partial(answer), partial(another)),
    "functions in a list": ([answer, another], [another, answer]),
    "methods": (DOING.one, DOING.two),
    "methods of a list": (([], 1)[0].append, ([], 1)[0].clear),
    "functions of torch": (torch.tanh, torch.sigmoid),
    "methods of torch": (torch.Tensor.tanh, torch.Tensor.sigmoid),
    "functions of NumPy": (np.tanh, np.sin),
    "functions of Python": (max, min),
    "getters": (operator.itemgetter(1), operator.itemgetter(2)),
    "classes": (Helper, Counts),
    "modules": (random, itertools),
    "decimal numbers": (decimal.Decimal(0), decimal.Decimal(1)),
    "fractions": (Fraction(1, 2), Fraction(1, 3)),
    "dates": (date(2026, 1, 1), date(2026, 1, 2)),
    "times": (timedelta(0), timedelta(1)),
    "ranges": (range(1), range(2)),
    "slices": (slice(1), slice(2)),
    "views of a dictionary": (MappingProxyType({"a": 0}), MappingProxyType({"a": 1})),
    "values of a dictionary": ({"a": 0}.values(), {"a": 1}.values()),
    "types of numbers": (torch.float32, torch.float16),
    "types of numbers in NumPy": (np.dtype("f4"), np.dtype("f8")),
    "devices": (torch.device("cpu"), torch.device("meta")),
    "paths": (Path("a"), Path("b")),
    "seeds": (np.random.SeedSequence(1), np.random.SeedSequence(2)),
    "bits of NumPy": (np.random.PCG64(1), np.random.PCG64(2)),
    "texts that are not valid": ("\ud800", "\ud801"),
    "zeros": (0.0, -0.0),
    "a number and a truth": ([1], [True]),
    "the second of two": (((x := [1]), (y := [2]), x), (x, y, y)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_whatever_an_attribute_holds_counts(what: str) -> None:
    one, two = DIFFERENT[what]
    assert digest(Helper(one)) == digest(Helper(one)) != digest(Helper(two))
    if not hasattr(one, "__next__") and not isinstance(one, type({}.values()) | type(random) | MappingProxyType):
        assert digest(deepcopy(one)) == digest(one)


def test_a_file_that_is_loaded_again_has_the_same_fingerprint(tmp_path: Path) -> None:
    """Each run of a program loads the user's files anew, in a package of its own."""
    (tmp_path / "mine.py").write_text("import math\n\n\nclass Kind: ...\n\n\ndef double(x):\n    return 2 * x\n")
    found = []
    for _ in range(2):
        outside.begin()
        module = outside.load_file(tmp_path / "mine.py")
        found.append((module, [module, module.Kind, module.double, partial(module.double, 1)]))
    assert found[0][0] is not found[1][0]
    assert digest(found[0][1]) == digest(found[1][1]) != digest([module, module.double, module.Kind])


def test_how_many_children_a_generator_has_spawned_counts() -> None:
    for x in (np.random.default_rng(1), np.random.SeedSequence(1), np.random.PCG64(1)):
        before = digest([x])
        assert digest([x]) == before
        x.spawn(1)
        assert digest([x]) != before


def test_what_changes_nothing_does_not_count() -> None:
    path = Path("a") / "b"
    x = [path, counting, DOING.one, torch.nn.functional.relu, torch.optim.Adam.step, torch.no_grad()(answer)]
    before = digest(x)
    assert str(path) and hash(path) and answer() and DOING.one()
    x[2] = DOING.one  # each access makes another object
    assert digest(x) == before


MUCH: dict[str, Callable[[], Any]] = {
    "numbers": lambda: list(range(3010)),
    "a table": lambda: [[i] for i in range(3010)],
}


@pytest.mark.parametrize("what", MUCH)
def test_what_stands_beside_more_than_is_looked_at_counts(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "NODES", 3000)
    deep = Helper(0)
    x = SimpleNamespace(count=0, rows=MUCH[what](), reader=Helper(Helper(deep)))
    before = digest(x)
    deep.inside = 1
    among = digest(x)
    x.count = 1
    assert len({before, among, digest(x)}) == 3


def test_a_number_among_very_many_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "NODES", 3000)
    x = list(range(3010))
    before = digest([x])
    x[0] = -1
    among = digest([x])
    x[-1] = -1
    assert len({before, among, digest([x])}) == 3
