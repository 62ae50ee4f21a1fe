"""What is remembered between acting and learning: `Rollout` forgets after use, `Replay` keeps and resamples.

Both yield minibatches that carry `weight`, fixed for the whole minibatch; `split` may then cut one into micro-batches.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import seeding
from rlkit.losses import Over, reduction


def flatten_groups(rollout: TensorDict) -> TensorDict:
    """[P, G, ...] → [B, ...] with B = P·G; a rollout without groups is returned as it is."""
    return rollout.flatten(0, 1) if rollout.batch_dims == 2 else rollout


def flatten_steps(rollout: TensorDict) -> TensorDict:
    """[B, T] → [N]: the steps where the policy acted, for policies without memory. Keys of whole rows are dropped."""
    mask = rollout["mask"]
    steps = {key: x for key, x in rollout.items() if x.shape[:2] == mask.shape}
    whole = bool(mask.all())
    return TensorDict(
        {key: x.flatten(0, 1) if whole else x[mask] for key, x in steps.items()},
        batch_size=[mask.numel() if whole else int(mask.sum())],
    )


def concatenate(rollouts: Sequence[TensorDict]) -> TensorDict:
    """The starts of several rollouts one after the other, padded to the longest with steps that nobody acted in."""
    longest = max(rollout["mask"].shape[-1] for rollout in rollouts)
    parts = []
    for rollout in rollouts:
        mask, extra = rollout["mask"], longest - rollout["mask"].shape[-1]
        time = mask.dim() - 1
        data = {
            key: torch.cat([x, x.new_zeros(*x.shape[:time], extra, *x.shape[time + 1 :])], time)
            if x.shape[: time + 1] == mask.shape
            else x
            for key, x in rollout.items()
        }
        parts.append(TensorDict(data, batch_size=rollout.batch_size))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def cut_short(rollout: TensorDict) -> Tensor:
    """Which rows ended at the limit of steps, not by themselves: [...] bool."""
    if "truncated" in rollout.keys():
        return rollout["truncated"]
    return (rollout["done"] & ~rollout["terminated"]).any(-1)


def last_step(mask: Tensor) -> Tensor:
    """How many steps of each row matter: 1 + the index of the last True. mask: [B, ..., T] → [B]."""
    index = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    return (mask * index).flatten(1).amax(1)


def split(batch: TensorDict, steps: int | None) -> Iterator[TensorDict]:
    """Cut a minibatch of whole rows into micro-batches of about `steps` steps, padding included.

    Rows are sorted by length and the padding at the end is cut off, so little is computed for nothing. The weights were
    fixed before, so the summed gradient is that of the whole minibatch. None, or a batch without time: no cut.
    """
    if steps is None or batch["mask"].dim() < 2:
        yield batch
        return
    mask = batch["mask"]
    time = mask.dim() - 1
    lengths, order = last_step(mask).sort()
    sizes, start = lengths.tolist(), 0
    per_row = mask[0].numel() // mask.shape[-1]
    while start < len(sizes):
        stop = start + 1
        while stop < len(sizes) and (stop + 1 - start) * per_row * sizes[stop] <= steps:
            stop += 1
        rows, end = batch[order[start:stop]], max(1, sizes[stop - 1])
        timed = {key for key, x in batch.items() if x.shape[: time + 1] == mask.shape}
        cut = {key: x.narrow(time, 0, end) if key in timed else x for key, x in rows.items()}
        yield TensorDict(cut, batch_size=rows.batch_size)
        start = stop


def in_parts(
    function: Callable[[TensorDict], dict[str, Tensor]], batch: TensorDict, steps: int | None
) -> dict[str, Tensor]:
    """A function of a batch [B, T], such as `policy.evaluate`, on a whole rollout in micro-batches of `steps` steps."""
    batch = batch.copy().set("row", torch.arange(batch.batch_size[0], device=batch["mask"].device))
    whole: dict[str, Tensor] = {}
    for part in split(batch, steps):
        for key, x in function(part).items():
            whole.setdefault(key, x.new_zeros(batch["mask"].shape))[part["row"], ..., : x.shape[-1]] = x
    return whole


class Rollout:
    """On-policy memory: `epochs` passes over the newest rollout in `minibatches` parts, then forgotten.

    whole_rows   keep [B, T] (sequence models); otherwise steps are flattened to [N] and shuffled
    over, length the reduction that fixes each minibatch's weights, see `losses.reduction`
    drop_flat    leave out rows whose advantage is 0 everywhere once the weights are fixed: they would add exactly
                 nothing to a loss that is linear in the advantage, and cost a forward and a backward pass. The
                 metrics of the loss are then those of the rows that are left.
    """

    def __init__(
        self,
        seed: int,
        epochs: int = 1,
        minibatches: int = 1,
        whole_rows: bool = True,
        over: Over = "token",
        length: int = 1,
        drop_flat: bool = False,
    ) -> None:
        self.seed, self.epochs, self.minibatches, self.whole_rows = seed, epochs, minibatches, whole_rows
        self.over, self.length, self.drop_flat = over, length, drop_flat
        self.count = 0
        self.data: TensorDict | None = None

    def extend(self, rollout: TensorDict) -> None:
        self.data = rollout if self.whole_rows else flatten_steps(rollout)
        self.count += 1

    def __iter__(self) -> Iterator[TensorDict]:
        assert self.data is not None, "extend before iterating"
        data, self.data = self.data, None
        shuffle = seeding.generator(self.seed, "shuffle", self.count)
        for _ in range(self.epochs):
            if self.minibatches == 1:
                yield self.weigh(data)
                continue
            order = torch.randperm(data.batch_size[0], generator=shuffle)
            parts = min(self.minibatches, len(order))
            sizes = [len(order) // parts + (i < len(order) % parts) for i in range(parts)]
            for part in data[order.to(data["mask"].device)].split(sizes):
                yield self.weigh(part)

    def weigh(self, batch: TensorDict) -> TensorDict:
        batch = batch.set("weight", reduction(batch["mask"], self.over, self.length))
        if self.drop_flat:
            signal = (batch["advantage"] * batch["mask"]).flatten(1).abs().amax(1) > 0
            batch = batch[signal] if bool(signal.any()) else batch[:1]
        return batch

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Window:
    """Steps that wait for what comes after them: the last `n` columns of a stream, put in front of the next rollout.

    `join` gives [B, n + T] (at the start of the stream fewer), `ready` all of it but the last n columns: those whose n
    successors are known. So each column is learned once, n steps late; what is still waiting is part of the state.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.waiting: dict[str, Tensor] = {}

    def join(self, rollout: TensorDict) -> TensorDict:
        """Put the waiting columns in front, and keep the last n of both. Keys of whole rows are the rollout's own."""
        mask = rollout["mask"]
        timed = {key: x for key, x in rollout.items() if x.shape[:2] == mask.shape}
        if self.waiting:
            timed = {key: torch.cat([self.waiting[key], x], 1) for key, x in timed.items()}
        if self.n:
            self.waiting = {key: x[:, -self.n :].clone() for key, x in timed.items()}
        return TensorDict({**dict(rollout.items()), **timed}, batch_size=rollout.batch_size)

    def ready(self, joined: TensorDict) -> TensorDict:
        """The columns of a joined rollout (with what was added to it since) that may be learned now."""
        mask = joined["mask"]
        width = max(0, mask.shape[1] - self.n)
        cut = {key: x[:, :width] if x.shape[:2] == mask.shape else x for key, x in joined.items()}
        return TensorDict(cut, batch_size=joined.batch_size)

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": self.waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.waiting = dict(state["waiting"])


class Replay:
    """Off-policy memory: a ring of the newest `capacity` steps, sampled uniformly with replacement.

    Each iteration yields `updates` minibatches of `batch_size` steps, none before `warmup` steps were seen (Lin 1992;
    Mnih et al. 2015).
    """

    def __init__(self, seed: int, capacity: int, batch_size: int, updates: int, warmup: int) -> None:
        self.capacity, self.batch_size, self.updates, self.warmup = capacity, batch_size, updates, warmup
        self.generator = seeding.generator(seed, "replay")
        self.store: dict[str, Tensor] = {}
        self.seen = 0  # steps ever added

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def extend(self, rollout: TensorDict) -> None:
        steps = flatten_steps(rollout)
        steps = steps[-self.capacity :]
        if not self.store:
            self.store = {key: x.new_zeros((self.capacity, *x.shape[1:])) for key, x in steps.items()}
        place = (self.seen + torch.arange(len(steps))) % self.capacity
        for key, ring in self.store.items():
            ring[place] = steps[key]
        self.seen += len(steps)

    def __iter__(self) -> Iterator[TensorDict]:
        if self.seen < max(self.warmup, 1):
            return
        for index, weight in self.draw():
            there = index.to(self.store["mask"].device)
            data = {key: ring.index_select(0, there) for key, ring in self.store.items()}
            data |= {"index": there, "weight": (weight / self.batch_size).to(there.device)}
            yield TensorDict(data, batch_size=[self.batch_size])

    def draw(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The places of each minibatch, and how much each of its steps weighs: [batch_size] both."""
        weight = torch.ones(self.batch_size)
        drawn = torch.randint(len(self), (self.updates, self.batch_size), generator=self.generator)
        for index in drawn:
            yield index, weight

    def state_dict(self) -> dict[str, Any]:
        return {"store": self.store, "seen": self.seen, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.store, self.seen = dict(state["store"]), state["seen"]
        self.generator.set_state(state["generator"])
