"""What is looked at of an object: each part once."""

from typing import Any

import numpy as np
import pytest
import torch

from rlkit import attributes
from rlkit.attributes import can_be_saved, check_numbers, is_state
from rlkit.fingerprint import digest


def rings() -> list[Any]:
    tree: dict[Any, Any] = {"parent": None}
    tree["children"] = [{"parent": tree} for _ in range(20)]
    many: list[Any] = []
    many += [many] * 20
    layers: list[Any] = []
    for _ in range(19):
        layers = [layers] * 20
    return [tree, many, layers]


@pytest.mark.parametrize("which", range(3))
def test_collections_that_hold_themselves_are_looked_at_once(which: int) -> None:
    ring = rings()[which]
    assert not is_state(ring)
    assert which == 2 or not can_be_saved(ring)
    holder = [ring, {"deep": (ring, torch.zeros(2))}]
    assert is_state(holder) and digest(holder) == digest(holder)


def test_a_tensor_far_inside_is_state() -> None:
    x: Any = torch.zeros(1)
    for _ in range(30):
        x = [x]
    assert is_state(x) and not can_be_saved(x)


def test_what_stands_beside_many_collections_is_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "NODES", 100)
    many: list[Any] = [[] for _ in range(100)]
    assert not is_state(many)
    assert is_state([torch.zeros(1), *many]) and is_state([*many, torch.zeros(1)])


def test_a_text_is_no_number() -> None:
    check_numbers([1, 0.5, True, np.int64(1), torch.tensor(2), np.array(1)])
    for x in ("1", torch.zeros(1), None, [1]):
        with pytest.raises(TypeError, match="stands in place of a number"):
            check_numbers([1, x])
