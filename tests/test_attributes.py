"""What is looked at of an object: each part once, and its bytes where they are."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from support.state import Helper
from tensordict import TensorDict

from rlkit.attributes import can_be_saved, check_numbers, digest, is_state


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


def test_the_order_of_a_set_does_not_count() -> None:
    members: list[Any] = [-1, -2, "a", (1, "b"), frozenset([2]), None]
    there = set()
    for member in reversed(members):
        there.add(member)
    assert digest(set(members)) == digest(there) != digest(set(members[1:]))


def test_a_text_is_no_number() -> None:
    check_numbers([1, 0.5, True, np.int64(1), torch.tensor(2), np.array(1)])
    for x in ("1", torch.zeros(1), None, [1]):
        with pytest.raises(TypeError, match="stands in place of a number"):
            check_numbers([1, x])
