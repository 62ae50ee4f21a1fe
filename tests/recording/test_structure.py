"""What a checkpoint can hold: the structure of a state beside its tensors."""

import json
import re
from collections import Counter, OrderedDict, defaultdict, deque
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from support.resuming import same
from support.state import holding

from rlkit.api import UserError
from rlkit.held import fingerprints
from rlkit.progress import Progress, restore, save
from rlkit.recording import checkpoint, structure
from rlkit.recording.twins import copied


def file(folder: Path, name: str = "latest") -> Path:
    return folder / "checkpoints" / f"{name}.safetensors"


def test_what_cannot_be_held_is_named_and_nothing_is_pickled(tmp_path: Path) -> None:
    said = r"^a checkpoint cannot hold the Fraction /'a'/1: keep numbers, texts, tensors"
    with pytest.raises(UserError, match=said):
        checkpoint.save(tmp_path, {"a": [0, Fraction(1, 3)]})
    checkpoint.save(tmp_path, {"x": torch.ones(2), "n": 1})
    with safe_open(file(tmp_path), framework="pt") as opened:
        assert json.loads(opened.metadata()["structure"]) == {"x": {"$tensor": "/'x'"}, "n": 1}


def test_keys_of_a_dictionary_are_each_kept(tmp_path: Path) -> None:
    """Numbers of NumPy, tuples and tensors hold a tensor each in a file, as do their values."""
    one = torch.tensor(1)
    given = {np.int64(1): 1.0, np.int64(2): torch.ones(2), (np.int64(3), "a"): 3.0, (np.int64(4), "a"): 4.0, one: 5.0}
    checkpoint.save(tmp_path, {"visits": given})
    found = checkpoint.load(tmp_path)["visits"]
    assert list(found)[:4] == list(given)[:4] and torch.equal(list(found)[4], one)
    assert [float(torch.as_tensor(x).sum()) for x in found.values()] == [1, 2, 3, 4, 5]


def test_collections_of_the_standard_library_stay_what_they_are(tmp_path: Path) -> None:
    """What they do is theirs alone: a dict does not count what is missing, and a list does not drop its oldest item."""
    given: dict[str, Any] = {
        "count": Counter("abb"),
        "order": OrderedDict([("b", 1), ("$a", [torch.ones(2)])]),
        "most": deque([1, {2, 3}], maxlen=2),
        "any": deque([(1, 2)]),
        "default": defaultdict(list, {(0, 1): [0.5]}),
        "plain": defaultdict(None, {1: frozenset("ab")}),
    }
    checkpoint.save(tmp_path, given)
    for found in (checkpoint.load(tmp_path), copied(given)):
        assert [type(x) for x in found.values()] == [type(x) for x in given.values()]
        assert {k: x for k, x in found.items() if k != "order"} == {k: x for k, x in given.items() if k != "order"}
        assert list(found["order"]) == ["b", "$a"] and torch.equal(found["order"]["$a"][0], torch.ones(2))
        assert [found["most"].maxlen, found["any"].maxlen, found["count"]["c"], found["default"]["new"]] == [
            2,
            None,
            0,
            [],
        ]
        found["most"].append(4)
        found["default"][0, 1].append(1)
        assert list(given["most"]) == [1, {2, 3}] and given["default"][0, 1] == [0.5]
    net = torch.nn.Linear(1, 1).state_dict()
    checkpoint.save(tmp_path, {"net": net, "own": defaultdict(lambda: 7, {"a": 1})})
    found = checkpoint.load(tmp_path)
    assert [type(x) for x in found.values()] == [dict, dict] and same(found["net"], dict(net))


@pytest.mark.parametrize(
    "held",
    [
        ["os"],
        ["deque", -1],
        ["deque", 10**30],
        ["deque", -(10**30)],
        ["deque"],
        ["defaultdict", "eval"],
        ["Counter"],
        ["set"],
        ["set", 1],
    ],
)
def test_a_collection_that_a_changed_file_names_is_no_other(held: list[Any]) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        structure.decode({"$kind": held, "of": [[1]]}, {})


def test_tensors_and_arrays_lie_in_memory_as_before(tmp_path: Path) -> None:
    """Kernels round by the order of memory, and `inv` and `eigh` return columns after columns."""
    x, deep = torch.arange(12.0).view(3, 4), torch.arange(24.0).view(2, 3, 4)
    given = {
        "inverse": torch.linalg.inv(torch.eye(3) + 0.1),
        "turned": [x.T, x.numpy().T, np.asfortranarray(x.numpy())],
        "images": torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "moved": deep.permute(2, 0, 1),
        "single": x[None].mT,
    }
    checkpoint.save(tmp_path, given)
    found = checkpoint.load(tmp_path)
    assert same(found, given)
    for key in ("inverse", "images", "moved"):
        assert found[key].stride() == given[key].stride() and not found[key].is_contiguous()
    strides = [(x.stride() if isinstance(x, torch.Tensor) else x.strides) for x in found["turned"]]
    assert strides == [(1, 4), (4, 16), (4, 12)]
    assert found["single"].squeeze(0).stride() == (1, 4)
    checkpoint.save(tmp_path, {"gaps": x[:, ::2], "shared": torch.ones(1).expand(3), "back": x.numpy()[::-1]})
    assert all(x.is_contiguous() for x in map(torch.as_tensor, checkpoint.load(tmp_path).values()))


class Turning(torch.optim.SGD):
    """An optimizer of one's own, whose state has shapes of its own."""


def test_a_matrix_lies_in_memory_as_before(tmp_path: Path) -> None:
    """A product with a column-major matrix is rounded otherwise than with the same numbers row after row."""

    def made() -> tuple[Any, Any]:
        algo, env = holding("inverse", torch.eye(37), saved=("inverse", "moments", "mover"))
        algo.moments, p = np.asfortranarray(np.eye(37)), torch.nn.Parameter(torch.zeros(2))
        algo.policy.precision = algo.inverse  # a second name need not be saved
        algo.mover = Turning([p], lr=0.1)
        return algo, env

    algo, env = made()
    c = torch.rand(37, 37, generator=torch.Generator().manual_seed(0)) + 5 * torch.eye(37)
    algo.inverse = algo.policy.precision = torch.linalg.inv(c)
    algo.moments += c.numpy()
    state = algo.mover.state[algo.mover.param_groups[0]["params"][0]]
    state["basis"] = torch.linalg.eigh(c @ c.T)[1]
    save(tmp_path, algo, env, Progress(held=fingerprints(algo, env)))
    again, second = made()
    there = again.inverse, again.moments
    restore(tmp_path, again, second)
    assert again.inverse is again.policy.precision is there[0] and again.moments is there[1]
    x = torch.linspace(-1, 1, 37)
    for ours, theirs in ((algo.inverse, again.inverse), (state["basis"], *again.mover.state.values())):
        theirs = theirs["basis"] if isinstance(theirs, dict) else theirs
        assert ours.stride() == theirs.stride() == (1, 37) and torch.equal(ours @ x, theirs @ x)
    assert again.moments.flags.f_contiguous and np.array_equal(again.moments, algo.moments)


def test_matrices_of_modules_lie_in_memory_as_before(tmp_path: Path) -> None:
    """torch copies the numbers of a state into tensors of a module, which lie row after row when they are made."""

    def made() -> tuple[Any, Any]:
        algo, env = holding("scale", torch.nn.Module(), saved=("scale", "optimizer"))
        algo.scale.register_buffer("inverse", torch.eye(37))
        algo.scale.weight = torch.nn.Parameter(torch.eye(37))
        algo.optimizer = torch.optim.SGD(algo.scale.parameters(), lr=0.1)
        return algo, env

    algo, env = made()
    c = torch.rand(37, 37, generator=torch.Generator().manual_seed(0)) + 5 * torch.eye(37)
    algo.scale.inverse = algo.scale.weight.data = torch.linalg.inv(c)
    save(tmp_path, algo, env, Progress())
    again, second = made()
    restore(tmp_path, again, second)
    assert again.scale.inverse.stride() == again.scale.weight.stride() == (1, 37)
    assert again.optimizer.param_groups[0]["params"][0] is again.scale.weight
    x = torch.linspace(-1, 1, 37)
    assert torch.equal(algo.scale.inverse @ x, again.scale.weight @ x)
    algo.scale.inverse = algo.scale.inverse.contiguous()
    save(tmp_path, algo, env, Progress())
    restore(tmp_path, again, second)
    assert again.scale.inverse.is_contiguous() and again.scale.weight.stride() == (1, 37)


def test_a_part_of_another_tensor_may_become_one_in_another_order(tmp_path: Path) -> None:
    algo, env = holding("inverse", torch.zeros(2, 3, 3)[0], saved=("inverse",))
    algo.inverse = torch.linalg.inv(torch.eye(3) + 0.1)
    save(tmp_path, algo, env, Progress())
    again, second = holding("inverse", torch.zeros(2, 3, 3)[0], saved=("inverse",))
    restore(tmp_path, again, second)
    assert torch.equal(again.inverse, algo.inverse) and again.inverse.stride() == (1, 3)


@pytest.mark.parametrize("order", [[0, 0], [0], [1, 2], "10", [1, "0"], [1.0, 0.0], {}, 1])
def test_an_order_of_memory_that_cannot_be_is_damage(
    order: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "in_memory", lambda x: {"$order": order})
    for x in (torch.ones(2, 3), np.ones((2, 3))):
        checkpoint.save(tmp_path, {"x": x})
        if order == {}:
            assert checkpoint.load(tmp_path)["x"].shape == (2, 3)
            continue
        with pytest.raises(UserError, match="its structure and its tensors do not fit"):
            checkpoint.load(tmp_path)


@pytest.mark.parametrize("what", [{"$same": 0}, {"$same": "x"}, [[], {"$same": 1}], {"$same": -1}])
def test_a_name_of_no_object_is_damage(what: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "encode", lambda value, *more: what)
    checkpoint.save(tmp_path, {"numbers": {}})
    with pytest.raises(UserError, match="its structure and its tensors do not fit"):
        checkpoint.load(tmp_path)


def test_a_long_structure_is_kept_beside_the_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"returns": [0.1, "é"] * 100, "x": torch.ones(2)}
    monkeypatch.setattr(checkpoint, "HEADER", 10**4)
    checkpoint.save(tmp_path, state, iteration=3)
    with safe_open(file(tmp_path), framework="pt") as opened:
        assert set(opened.metadata()) == {"iteration", "checksum"}
    assert same(checkpoint.load(tmp_path), state)


def test_more_tensors_than_a_file_can_name_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, {"version": 1})
    monkeypatch.setattr(checkpoint, "HEADER", 10**4)
    state = {"parts": {"policy": {"w": torch.ones(2)}}, "numbers": {"memory": [torch.ones(()) for _ in range(99)]}}
    words = r"^'memory' has 99 tensors, of 100 in all, more than a checkpoint can name: keep fewer, or make one of"
    with pytest.raises(UserError, match=words):
        checkpoint.save(tmp_path, state)
    assert checkpoint.load(tmp_path)["version"] == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.eye(2).to_sparse(), "float32, sparse_coo"),
        (torch.ones(2, dtype=torch.complex128), "complex128, strided"),
        (np.ones(2, dtype=np.complex128), "complex128, strided"),
        (np.ones(2, dtype=np.longdouble), "the array.*longdouble|the array.*float128"),
        (np.array(["text"]), "the array.*<U4"),
        (np.ones(2, np.dtype(np.float32).newbyteorder()), "the array.*[<>]f4.*in native byte order"),
    ],
)
def test_what_a_file_cannot_hold_is_one_line(value: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^a checkpoint cannot hold the (tensor|array) /'mine' \(.*: keep") as said:
        checkpoint.save(tmp_path, {"mine": value})
    assert re.search(words, str(said.value)) and not list(tmp_path.iterdir())


def test_a_conjugate_is_kept_as_its_numbers(tmp_path: Path) -> None:
    state = {"mine": torch.tensor([1 + 2j]).conj()}
    checkpoint.save(tmp_path, state)
    assert torch.equal(checkpoint.load(tmp_path)["mine"], torch.tensor([1 - 2j]))
