"""Off-policy memory: a ring of the newest steps."""

from collections.abc import Iterator

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import seeding
from rlkit.api import State
from rlkit.buffers.splitting import acted_steps


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
        steps = acted_steps(rollout)
        if not self.store:
            self.store = {key: x.new_zeros((self.capacity, *x.shape[1:])) for key, x in steps.items()}
        if len(steps["mask"]) > self.capacity:
            steps = {key: x[-self.capacity :] for key, x in steps.items()}
        count, start = len(steps["mask"]), self.seen % self.capacity
        before_the_end = min(count, self.capacity - start)
        for key, ring in self.store.items():
            ring[start : start + before_the_end] = steps[key][:before_the_end]
            if before_the_end < count:
                ring[: count - before_the_end] = steps[key][before_the_end:]
        self.seen += count

    def __iter__(self) -> Iterator[TensorDict]:
        if self.seen < max(self.warmup, 1):
            return
        for index, weight in self.draw():
            there = index.to(self.store["mask"].device)
            data = {key: ring.index_select(0, there) for key, ring in self.store.items()}
            data |= {"index": there, "weight": weight.to(there.device)}
            yield TensorDict(data, batch_size=[self.batch_size])

    def draw(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The places of each minibatch, and the weight of each of its steps in the loss: [batch_size] both."""
        weight = torch.full((self.batch_size,), 1 / self.batch_size)
        drawn = torch.randint(len(self), (self.updates, self.batch_size), generator=self.generator)
        for index in drawn:
            yield index, weight

    def state_dict(self) -> State:
        return {"store": self.store, "seen": self.seen, "generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        self.store, self.seen = dict(state["store"]), state["seen"]
        self.generator.set_state(state["generator"])
