"""What a checkpoint can hold: the structure of a state beside its tensors."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from support.resuming import same

from rlkit.api import UserError
from rlkit.recording import checkpoint


def file(folder: Path, name: str = "latest") -> Path:
    return folder / "checkpoints" / f"{name}.safetensors"


def test_what_cannot_be_held_is_named_and_nothing_is_pickled(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a checkpoint cannot hold set at /'a'/1"):
        checkpoint.save(tmp_path, {"a": [0, {1}]})
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
