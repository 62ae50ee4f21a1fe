"""What is remembered: every step once an epoch, weights fixed before splitting, exact resume, a ring that forgets."""

from pathlib import Path

import pytest
import torch
from gymnasium.vector import AutoresetMode
from support.fakes import RaggedText, SequencePolicy, algorithm, iterate
from support.probes import Ring, control
from support.resuming import same
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import buffers, losses, policies
from rlkit.api import State, UserError
from rlkit.meter import Meter
from rlkit.recording import checkpoint


def grid(rows: int = 6, time: int = 5, seed: int = 0) -> TensorDict:
    """A rollout whose `id` tells every step apart; about a third of it masked."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, time, generator=draw) < 0.7
    step = torch.arange(rows * time).view(rows, time)
    observation = torch.stack([step, -step], -1).float()
    data = {"id": step, "mask": mask, "observation": observation, "score": torch.arange(rows).float()}
    return TensorDict(data, batch_size=[rows])


def ids(batch: TensorDict) -> list[int]:
    return batch["id"][batch["mask"]].tolist()


# Shapes


def test_flattening_groups_keeps_attempts_of_one_start_together() -> None:
    rollout = grid().unflatten(0, (2, 3))
    flat = buffers.flatten_groups(rollout)
    assert flat["score"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert torch.equal(flat["id"][4], rollout["id"][1, 1])
    assert buffers.flatten_groups(flat) is flat


def test_flattening_steps_keeps_what_was_acted_and_drops_whole_row_keys() -> None:
    rollout = grid()
    steps = buffers.flatten_steps(rollout)
    assert steps["id"].tolist() == ids(rollout)
    assert torch.equal(steps["observation"][:, 0], steps["id"].float())
    assert bool(steps["mask"].all()) and "score" not in steps.keys()
    rollout["mask"] = torch.ones_like(rollout["mask"])
    assert buffers.flatten_steps(rollout)["id"].tolist() == list(range(30))


def test_last_step_counts_to_the_last_true_of_a_row_or_a_pair() -> None:
    mask = torch.tensor([[False, True, False], [False, False, False], [True, True, True]])
    assert buffers.last_step(mask).tolist() == [2, 0, 3]
    assert buffers.last_step(torch.stack([mask, mask.flip(0)], 1)).tolist() == [3, 0, 3]


# Micro-batches


@pytest.mark.parametrize("steps", [1, 4, 7, 12, 30, 1000])
def test_split_holds_every_step_once_within_its_budget_and_cuts_only_padding(steps: int) -> None:
    batch = grid(rows=9, seed=3)
    batch["mask"][4] = False
    parts = list(buffers.split(batch, steps))
    assert sorted(i for part in parts for i in ids(part)) == ids(batch)
    assert sum(len(part) for part in parts) == 9
    for part in parts:
        assert len(part) == 1 or int(buffers.last_step(part["mask"]).sum()) <= steps  # padding counts nothing
        assert part["observation"].shape == (*part["mask"].shape, 2)
        assert bool(part["mask"][:, -1].any()) or not part["mask"].any()  # nothing is computed for nothing
        assert torch.equal(part["id"][:, 0], 5 * part["score"].long())  # whole rows travel with their row keys


def test_split_cuts_pairs_along_their_last_dimension() -> None:
    pairs = grid(rows=8).unflatten(0, (4, 2))
    batch = TensorDict(dict(pairs.items()), batch_size=[4])
    parts = list(buffers.split(batch, 20))
    assert sorted(i for part in parts for i in ids(part)) == sorted(ids(batch))
    assert all(part["mask"].numel() <= 20 and part["score"].shape == (len(part), 2) for part in parts)


def test_split_counts_once_what_rows_begin_with_alike_and_keeps_groups_together() -> None:
    """Three groups of four rows: 5 steps that all share, the last one acted, then 1, 2, 3 and 4 of your own."""
    start = torch.arange(3).repeat_interleave(4)
    text = torch.cat([start[:, None].expand(-1, 5), torch.arange(12 * 4).view(12, 4)], 1)
    end = 5 + torch.arange(1, 5).repeat(3)
    column = torch.arange(9)
    mask = (column >= 4) & (column < end[:, None])
    batch = TensorDict({"observation": text, "mask": mask, "start": start}, batch_size=[12])
    shuffled = batch[torch.randperm(12, generator=torch.Generator().manual_seed(0))]

    def groups(steps: int) -> list[list[int]]:
        return [sorted(part["start"].tolist()) for part in buffers.split(shuffled, steps)]

    assert groups(3 * 15) == [[0] * 4 + [1] * 4 + [2] * 4]  # 5 + 1 + 2 + 3 + 4 each
    assert sorted(groups(15)) == sorted(groups(29)) == [[0] * 4, [1] * 4, [2] * 4]
    assert sorted(map(len, groups(30))) == [4, 8]
    small = groups(14)  # a group that does not fit is cut, and its parts read their beginning again
    assert sorted(row for part in small for row in part) == start.tolist()
    assert all(len(set(part)) == 1 for part in small) and len(small) == 6


def test_split_without_a_budget_or_without_rows_is_no_cut() -> None:
    batch, steps = grid(), buffers.flatten_steps(grid())
    assert next(iter(buffers.split(batch, None))) is batch
    assert [len(part) for part in buffers.split(steps, 2)] == [len(steps)]


@pytest.mark.parametrize("micro_steps", [None, 1, 17, 1000])
def test_evaluating_in_parts_equals_evaluating_at_once(micro_steps: int | None) -> None:
    batch = RaggedText().batch(11)
    whole = SequencePolicy(critic=True).evaluate(batch)
    parts = buffers.in_parts(SequencePolicy(critic=True).evaluate, batch, micro_steps)
    assert whole.keys() == parts.keys()
    for key, x in whole.items():
        assert_close(parts[key], x)


# On-policy memory


@pytest.mark.parametrize("whole_rows", [True, False])
def test_every_epoch_visits_every_step_once_and_the_weights_of_a_minibatch_sum_to_1(whole_rows: bool) -> None:
    memory = buffers.Rollout(0, epochs=3, minibatches=4, whole_rows=whole_rows)
    memory.extend(grid(rows=10))
    batches = list(memory)
    assert len(batches) == 12
    for epoch in range(3):
        seen = [i for batch in batches[4 * epoch : 4 * epoch + 4] for i in ids(batch)]
        assert sorted(seen) == ids(grid(rows=10))
    for batch in batches:
        assert_close(batch["weight"].sum(), torch.tensor(1.0))
    assert ids(batches[0]) != ids(batches[4])  # each epoch has an order of its own


@pytest.mark.parametrize("over", ["token", "sequence", "constant", "row"])
def test_weights_are_those_of_the_whole_minibatch(over: losses.Over) -> None:
    memory = buffers.Rollout(0, minibatches=2, over=over, length=5)
    memory.extend(grid())
    for batch in memory:
        assert_close(batch["weight"], losses.reduction(batch["mask"], over, 5))


def test_a_rollout_is_forgotten_after_use() -> None:
    memory = buffers.Rollout(0)
    memory.extend(grid())
    list(memory)
    assert memory.data is None
    memory.extend(grid(seed=1))
    assert ids(next(iter(memory))) == ids(grid(seed=1))


def test_a_rollout_that_is_not_learned_from_yet_resumes(tmp_path: Path) -> None:
    """An algorithm of one's own may learn from every second one, or have a second memory."""
    first, resumed = (buffers.Rollout(7, minibatches=3) for _ in range(2))
    assert first.state_dict() == {"count": 0, "data": None}
    first.extend(grid())
    checkpoint.save(tmp_path, first.state_dict())
    resumed.load_state_dict(checkpoint.load(tmp_path))
    for ours, theirs in zip(first, resumed, strict=True):
        assert ours.batch_size == theirs.batch_size and same(dict(ours.items()), dict(theirs.items()))
    resumed.load_state_dict({"count": 4})  # of an older version
    assert resumed.count == 4 and resumed.data is None
    resumed.load_state_dict({"count": 5, "data": {"mine": 1}})
    assert resumed.count == 5 and resumed.data is None


class Gathering(buffers.Rollout):
    """Learns from several rollouts at once."""

    def extend(self, rollout: TensorDict) -> None:
        self.data = [*(self.data or []), rollout]  # type: ignore[assignment]


class Keeping(Gathering):
    def state_dict(self) -> State:
        return super().state_dict() | {"data": {"mine": len(self.data or [])}}


def test_a_rollout_in_a_form_of_its_own_is_not_lost_without_a_word() -> None:
    memory, other = Gathering(0), Keeping(0)
    assert memory.state_dict() == {"count": 0, "data": None}
    for x in (memory, other):
        x.extend(grid())
    with pytest.raises(UserError, match=r"^Gathering holds a list in data, which a resume would lose: give it a state"):
        memory.state_dict()
    assert other.state_dict() == {"count": 0, "data": {"mine": 1}}


def test_shuffling_is_a_function_of_the_seed_and_of_how_many_rollouts_there_were() -> None:
    def orders(memory: buffers.Rollout) -> list[list[int]]:
        memory.extend(grid())
        return [ids(batch) for batch in memory]

    first, resumed = (buffers.Rollout(7, epochs=2, minibatches=3) for _ in range(2))
    before = orders(first)
    resumed.load_state_dict(first.state_dict())
    after = orders(first)
    assert orders(resumed) == after != before
    assert orders(buffers.Rollout(7, epochs=2, minibatches=3)) == before
    assert orders(buffers.Rollout(8, epochs=2, minibatches=3)) != before


def gradient(memory: buffers.Rollout, batch: TensorDict, advantage: Tensor) -> tuple[Tensor, list[int]]:
    """Of Σ weight·(−A·log π), and how many rows it was computed from."""
    policy, sizes = SequencePolicy(), []
    memory.extend(batch.clone().set("advantage", advantage))
    for part in memory:
        each = losses.policy_gradient(policy.evaluate(part)["log_prob"], part["advantage"])
        (each * part["weight"]).sum().backward()
        sizes.append(len(part))
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]), sizes


@pytest.mark.parametrize("over", ["token", "sequence", "constant"])
@pytest.mark.parametrize("minibatches", [1, 3])
def test_leaving_out_flat_rows_changes_no_gradient(over: losses.Over, minibatches: int) -> None:
    batch = RaggedText().batch(12)
    advantage = (batch["score"] * (torch.arange(12) % 3 > 0)).unsqueeze(-1).expand(12, 8)
    full, sizes = gradient(buffers.Rollout(0, 1, minibatches, over=over, length=6), batch, advantage)
    lean, fewer = gradient(buffers.Rollout(0, 1, minibatches, over=over, length=6, drop_flat=True), batch, advantage)
    assert_close(lean, full)
    assert (sum(sizes), sum(fewer)) == (12, 8)


def test_when_every_row_is_flat_the_gradient_is_zero_and_nothing_breaks() -> None:
    batch = RaggedText().batch(4)
    zero, sizes = gradient(buffers.Rollout(0, drop_flat=True), batch, torch.zeros(4, 8, dtype=torch.float64))
    assert sizes == [1] and not zero.any()


def test_a_batch_without_signal_counts_in_no_metric_of_the_loss() -> None:
    """The one row that is left says nothing of the others: no share and no entropy is told of it."""
    batch, memory, meter = RaggedText().batch(4), buffers.Rollout(0, 1, 2, drop_flat=True), Meter()
    some = torch.zeros(4, 8, dtype=torch.float64)
    for advantage, learned in ((some, {}), (some.index_fill(0, torch.tensor([2]), 1.0), {"x": 7.0})):
        memory.extend(batch.clone().set("advantage", advantage))
        for part in memory:
            meter.add({"x": torch.full(part["mask"].shape, 7.0)}, part["mask"])
        assert meter.read() == learned


def test_an_advantage_where_nobody_acted_is_no_signal() -> None:
    batch = RaggedText().batch(4)
    masked = torch.where(batch["mask"], 0.0, 5.0).double()
    assert gradient(buffers.Rollout(0, drop_flat=True), batch, masked)[1] == [1]


# Replay


def numbered(first: int, count: int, rows: int = 1) -> TensorDict:
    """`rows` rows of `count` steps in all, numbered from `first`."""
    step = torch.arange(first, first + count).view(rows, -1)
    return TensorDict({"id": step, "mask": torch.ones_like(step, dtype=torch.bool)}, batch_size=[rows])


def test_replay_keeps_the_newest_steps() -> None:
    memory = buffers.Replay(0, capacity=5, batch_size=1, updates=1, warmup=0)
    memory.extend(numbered(0, 3))
    assert len(memory) == 3 and memory.store["id"][:3].tolist() == [0, 1, 2]
    memory.extend(numbered(3, 4))
    assert len(memory) == 5 and sorted(memory.store["id"].tolist()) == [2, 3, 4, 5, 6]
    memory.extend(numbered(7, 12, rows=2))  # more than it can hold
    assert len(memory) == 5 and sorted(memory.store["id"].tolist()) == [14, 15, 16, 17, 18]
    memory.extend(numbered(19, 2))
    assert sorted(memory.store["id"].tolist()) == [16, 17, 18, 19, 20]


def test_replay_stores_no_step_where_nobody_acted() -> None:
    memory, rollout = buffers.Replay(0, 50, 1, 1, 0), grid()
    memory.extend(rollout)
    assert memory.store["id"][: len(memory)].tolist() == ids(rollout)


def test_replay_waits_for_its_warm_up_and_never_samples_an_empty_place() -> None:
    memory = buffers.Replay(0, capacity=100, batch_size=16, updates=3, warmup=8)
    memory.extend(numbered(1, 7))
    assert list(memory) == []
    memory.extend(numbered(8, 1))
    batches = list(memory)
    assert len(batches) == 3
    for batch in batches:
        assert batch.batch_size == (16,) and int(batch["id"].min()) >= 1 and int(batch["id"].max()) <= 8
        assert_close(batch["weight"].sum(), torch.tensor(1.0))


def test_replay_samples_uniformly() -> None:
    memory = buffers.Replay(0, capacity=10, batch_size=500, updates=40, warmup=0)
    memory.extend(numbered(0, 10))
    count = torch.cat([batch["id"] for batch in memory]).bincount(minlength=10)
    assert float((count - 2000).abs().max()) < 4 * (20_000 * 0.1 * 0.9) ** 0.5  # four standard deviations


def test_replay_resumes_with_the_same_contents_and_the_same_draws() -> None:
    first, second = (buffers.Replay(3, capacity=6, batch_size=4, updates=2, warmup=0) for _ in range(2))
    first.extend(numbered(0, 8))
    list(first)
    state = first.state_dict()
    state = state | {"store": {key: x.clone() for key, x in state["store"].items()}}
    first.extend(numbered(8, 3))
    drawn = [batch["id"].tolist() for batch in first]
    second.load_state_dict(state)
    second.extend(numbered(8, 3))
    assert [batch["id"].tolist() for batch in second] == drawn


def test_a_replay_whose_first_steps_all_wait_resumes() -> None:
    first, second = (buffers.Replay(3, capacity=6, batch_size=4, updates=2, warmup=0) for _ in range(2))
    first.extend(numbered(0, 0))  # with n-step sums, until the first step has its successors
    second.load_state_dict(first.state_dict())
    for memory in (first, second):
        memory.extend(numbered(0, 3))
    assert [batch["id"].tolist() for batch in second] == [batch["id"].tolist() for batch in first]


@pytest.mark.parametrize("minibatches", [1, 4])
@pytest.mark.parametrize("whole_rows", [False, True])
def test_a_rollout_without_elements_gives_no_minibatch(whole_rows: bool, minibatches: int) -> None:
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    rollout = TensorDict({"mask": nothing, "observation": torch.zeros(2, 3)}, batch_size=[2])
    for given in [rollout[:0]] if whole_rows else [rollout, rollout[:0]]:
        buffer = buffers.Rollout(0, epochs=2, minibatches=minibatches, whole_rows=whole_rows)
        buffer.extend(given)
        assert list(buffer) == []


@pytest.mark.parametrize("name", ["ppo", "a2c", "dqn"])
def test_an_iteration_that_only_resets_teaches_nothing_and_the_run_goes_on(name: str) -> None:
    env = control(Ring, rows=1, limit=2, mode=AutoresetMode.NEXT_STEP)
    ppo = {"horizon": 1, "minibatches": 2, "normalize_advantage": False}
    keys = {"dqn": {"steps": 1, "warmup_steps": 1}, "a2c": {"horizon": 1}, "ppo": ppo}
    algo = algorithm(name, env, policies.Network((4,)), **keys[name])
    acted = [bool(iterate(algo, env)["mask"].any()) for _ in range(6)]
    assert acted == [True, True, False, True, True, False]
    assert all(bool(p.isfinite().all()) for p in algo.policy.parameters())
