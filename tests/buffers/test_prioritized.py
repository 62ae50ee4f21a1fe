"""Prioritised replay against brute force: the tree's sums, the index for a mass, weights by hand, exact resume."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit.buffers.prioritized import EPS, Prioritized, SumTree
from rlkit.recording import checkpoint

CAPACITIES = [1, 2, 3, 5, 8, 13, 100]

# The tree


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_node_is_the_sum_of_its_leaves_after_any_updates(capacity: int) -> None:
    draw, tree, direct = np.random.default_rng(capacity), SumTree(capacity), np.zeros(capacity)
    for _ in range(50):
        index = draw.integers(0, capacity, 7)  # with repetitions: the last one stays
        priority = draw.random(7) * draw.integers(0, 2, 7)
        tree.update(index, priority)
        for i, p in zip(index, priority, strict=True):
            direct[i] = p
        np.testing.assert_array_equal(tree.priority, direct)
    leaves = np.concatenate([direct, np.zeros(tree.size - capacity)])
    for level in range(tree.depth + 1):
        sums = leaves.reshape(1 << level, -1).sum(-1)
        np.testing.assert_allclose(tree.node[1 << level : 2 << level], sums, rtol=1e-12)
    assert tree.total == pytest.approx(direct.sum(), rel=1e-12)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_index_for_a_mass_is_that_of_the_prefix_sums(capacity: int) -> None:
    draw, tree = np.random.default_rng(capacity), SumTree(capacity)
    priority = draw.integers(0, 4, capacity).astype(float)  # whole numbers: sums are exact, some are 0
    priority[draw.integers(capacity)] = 5.0
    tree.update(np.arange(capacity), priority)
    mass = np.concatenate([np.arange(tree.total), np.arange(tree.total) + 0.5, [np.nextafter(tree.total, 0)]])
    expected = np.searchsorted(np.cumsum(priority), mass, side="right")
    np.testing.assert_array_equal(tree.find(mass), expected)


@pytest.mark.parametrize("capacity", [3, 13, 100, 1000])
def test_a_slot_without_priority_is_never_found_even_where_sums_are_rounded(capacity: int) -> None:
    draw, tree = np.random.default_rng(capacity), SumTree(capacity)
    for _ in range(200):
        priority = draw.random(capacity) ** 8 * (draw.random(capacity) < 0.5)
        priority[draw.integers(capacity)] = 0.1
        tree.update(np.arange(capacity), priority)
        sums = np.cumsum(priority)
        beside = np.concatenate([sums, np.nextafter(sums, 0), np.nextafter(sums, np.inf), [0.0, tree.total]])
        found = tree.find(np.minimum(beside, tree.total))
        assert found.max() < capacity and (priority[found] > 0).all()


def test_a_tree_is_a_function_of_its_leaves() -> None:
    draw, first, second = np.random.default_rng(0), SumTree(77), SumTree(77)
    for _ in range(30):
        first.update(draw.integers(0, 77, 9), draw.random(9))
    second.load(first.priority)
    np.testing.assert_array_equal(second.node, first.node)


# The replay


def steps(first: int, count: int) -> TensorDict:
    """One row of `count` steps, numbered from `first`."""
    step = torch.arange(first, first + count).unsqueeze(0)
    return TensorDict({"id": step, "mask": torch.ones_like(step, dtype=torch.bool)}, batch_size=[1])


def replay(capacity: int, batch_size: int = 4, updates: int = 1, alpha: float = 1.0, beta: float = 0.5) -> Prioritized:
    return Prioritized(0, capacity, batch_size, updates, warmup=1, alpha=alpha, beta=beta)


def learned(memory: Prioritized, *errors: float) -> None:
    """Give the first steps these errors."""
    memory.update(torch.arange(len(errors)), torch.tensor(errors))


def test_a_priority_is_the_error_to_the_power_alpha_once_and_new_steps_get_the_highest_seen() -> None:
    memory = replay(6, alpha=0.5)
    memory.extend(steps(0, 3))
    assert memory.tree.priority.tolist() == [1, 1, 1, 0, 0, 0]
    learned(memory, 0.25, -9.0, 4.0)
    expected = np.array([0.5, 3.0, 2.0, 0, 0, 0])
    np.testing.assert_allclose(memory.tree.priority, expected, atol=1e-5)
    memory.extend(steps(3, 1))
    assert memory.tree.priority[3] == memory.tree.priority[1] == (9.0 + EPS) ** 0.5  # not raised to alpha again
    learned(memory, 0.25, 0.25, 0.25, 0.25)
    memory.extend(steps(4, 1))
    assert memory.tree.priority[4] == (9.0 + EPS) ** 0.5  # the highest ever, though no step has it any more


def test_a_new_step_takes_the_place_and_the_priority_of_the_oldest() -> None:
    memory = replay(5)
    memory.extend(steps(0, 5))
    learned(memory, 0.1, 0.2, 0.3, 0.4, 0.5)
    memory.extend(steps(5, 2))
    assert memory.store["id"].tolist() == [5, 6, 2, 3, 4]
    np.testing.assert_allclose(memory.tree.priority, [1, 1, 0.3, 0.4, 0.5], atol=2e-6)
    memory.extend(steps(7, 12))  # more than it can hold
    assert sorted(memory.store["id"].tolist()) == [14, 15, 16, 17, 18]
    assert memory.tree.priority.tolist() == [1] * 5 and memory.tree.total == 5


def test_steps_are_drawn_in_proportion_to_their_priorities() -> None:
    memory, errors = replay(13, batch_size=500, updates=40), torch.arange(1.0, 11.0)
    memory.extend(steps(0, 10))  # three slots stay empty
    memory.update(torch.arange(10), errors)
    drawn = torch.cat([batch["index"] for batch in memory])
    share = errors / errors.sum()
    deviation = (drawn.bincount(minlength=10) - 20_000 * share).abs()
    assert len(drawn.bincount(minlength=10)) == 10
    assert bool((deviation < 4 * (20_000 * share * (1 - share)).sqrt()).all())


def test_each_slice_of_the_mass_gives_one_step() -> None:
    memory = replay(8, batch_size=8, updates=20)
    memory.extend(steps(0, 8))
    for batch in memory:
        assert batch["id"].tolist() == list(range(8))  # equal priorities: each step is one slice
    learned(memory, 4.0, 1.0, 1.0, 1.0, 1.0)
    memory.update(torch.arange(5, 8), torch.zeros(3))
    for batch in memory:
        assert batch["id"].tolist() == [0, 0, 0, 0, 1, 2, 3, 4]


def test_the_weights_by_hand() -> None:
    memory = replay(8, batch_size=15, beta=0.5)
    memory.extend(steps(0, 4))
    learned(memory, 1.0, 2.0, 4.0, 8.0)  # P = 1/15, 2/15, 4/15, 8/15; (N·P)^-½ = (4/15)^-½ · {1, 2, 4, 8}^-½
    (batch,) = memory
    by_hand = torch.tensor([1.0, 2**-0.5, 0.5, 8**-0.5])  # the largest is that of the rarest
    assert_close(batch["weight"], by_hand[batch["index"]] / 15, atol=1e-6, rtol=1e-5)
    assert sorted(set(batch["index"].tolist())) == [0, 1, 2, 3]
    memory.beta = 1.0
    (batch,) = memory
    assert_close(batch["weight"], (1 / torch.tensor([1.0, 2, 4, 8]))[batch["index"]] / 15, atol=1e-6, rtol=1e-5)


def test_fully_corrected_draws_weigh_every_step_alike_on_average() -> None:
    memory = replay(16, batch_size=1000, updates=20, beta=1.0)
    memory.extend(steps(0, 10))
    memory.update(torch.arange(10), torch.arange(1.0, 11.0))
    total = torch.zeros(10)
    for batch in memory:
        total.index_add_(0, batch["index"], batch["weight"])
    assert_close(total / total.sum(), torch.full((10,), 0.1), rtol=0.05, atol=0)


def test_alpha_0_is_uniform_replay() -> None:
    memory = replay(10, batch_size=500, updates=40, alpha=0.0)
    memory.extend(steps(0, 10))
    memory.update(torch.arange(10), torch.arange(10.0) ** 3)
    counts = torch.zeros(10, dtype=torch.long)
    for batch in memory:
        assert_close(batch["weight"], torch.full((500,), 1 / 500))
        memory.update(batch["index"], torch.linspace(0, 9, 500))
        counts += batch["index"].bincount(minlength=10)
    assert counts.tolist() == [2000] * 10  # ten equal slices of 50


def test_a_new_priority_counts_in_the_next_minibatch() -> None:
    memory = replay(20, batch_size=32, updates=2)
    memory.extend(steps(0, 20))
    batches = iter(memory)
    assert len(next(batches)["id"].unique()) == 20
    memory.update(torch.arange(20), 1e9 * (torch.arange(20) == 7))
    assert next(batches)["id"].tolist() == [7] * 32


def test_resume_mid_way_continues_with_the_same_bits(tmp_path: Path) -> None:
    def play(memory: Prioritized, first: int) -> list[list[float]]:
        memory.extend(steps(first, 9))
        seen = []
        for batch in memory:
            memory.update(batch["index"], (batch["id"] % 5 + 0.1).sqrt() + first)
            seen.append(batch["id"].tolist() + batch["weight"].tolist())
        return seen

    first, second = (replay(30, batch_size=6, updates=5, alpha=0.7) for _ in range(2))
    for k in range(5):
        play(first, 9 * k)
    checkpoint.save(tmp_path, {"buffer": first.state_dict()})
    after = [play(first, 45), play(first, 54)]
    second.load_state_dict(checkpoint.load(tmp_path)["buffer"])
    assert [play(second, 45), play(second, 54)] == after
    np.testing.assert_array_equal(second.tree.node, first.tree.node)
