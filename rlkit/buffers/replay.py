"""Off-policy memory: a ring of the newest steps."""

from collections.abc import Iterator

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import seeding
from rlkit.api import State
from rlkit.buffers.frames import Frames
from rlkit.buffers.splitting import acted_steps

SEEN = ("observation", "next_observation")  # what `frames` keeps: of these the store holds numbers


class Replay:
    """Off-policy memory: a ring of the newest `capacity` steps, sampled uniformly with replacement.

    Each iteration yields `updates` minibatches of `batch_size` steps, none before `warmup` steps were seen (Lin 1992;
    Mnih et al. 2015). With `frames`, which are for large observations, each frame is kept once.
    """

    def __init__(
        self, seed: int, capacity: int, batch_size: int, updates: int, warmup: int, frames: Frames | None = None
    ) -> None:
        self.capacity, self.batch_size, self.updates, self.warmup = capacity, batch_size, updates, warmup
        self.generator = seeding.generator(seed, "replay")
        self.store: dict[str, Tensor] = {}
        self.frames = frames
        self.seen = 0  # steps ever added

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def extend(self, rollout: TensorDict) -> None:
        self.add({key: x[-self.capacity :] for key, x in acted_steps(rollout).items()})

    def add(self, steps: dict[str, Tensor]) -> None:
        """Remember at most `capacity` steps, [N] each."""
        if self.frames is not None:
            steps = steps | self.framed(self.frames, steps)
        if not self.store:
            self.store = {key: x.new_zeros((self.capacity, *x.shape[1:])) for key, x in steps.items()}
        count, start = len(steps["mask"]), self.seen % self.capacity
        before_the_end = min(count, self.capacity - start)
        for key, ring in self.store.items():
            ring[start : start + before_the_end] = steps[key][:before_the_end]
            if before_the_end < count:
                ring[: count - before_the_end] = steps[key][before_the_end:]
        self.seen += count

    def framed(self, frames: Frames, steps: dict[str, Tensor]) -> dict[str, Tensor]:
        """The numbers of what steps see and saw next, whose frames are kept; those of the oldest steps go for them."""
        forgotten = self.places(self.seen + len(steps["mask"]) - self.capacity)
        for key, ring in self.store.items():
            if key in SEEN:
                frames.release(ring[forgotten.to(ring.device)])
        found = {key: frames.put(steps[key]) for key in SEEN}
        frames.next_rollout()
        return found

    def places(self, end: int) -> Tensor:
        """Where the steps are that are remembered, from the oldest on and before step number `end`."""
        return torch.arange(self.seen - len(self), max(end, self.seen - len(self))) % self.capacity

    def __iter__(self) -> Iterator[TensorDict]:
        if self.seen < max(self.warmup, 1):
            return
        for index, weight in self.draw():
            there = index.to(self.store["mask"].device)
            data = {key: ring.index_select(0, there) for key, ring in self.store.items()}
            if self.frames is not None:
                data |= {key: self.frames.get(data[key]) for key in SEEN}
            data |= {"index": there, "weight": weight.to(there.device)}
            yield TensorDict(data, batch_size=[self.batch_size])

    def draw(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The places of each minibatch, and the weight of each of its steps in the loss: [batch_size] both."""
        weight = torch.full((self.batch_size,), 1 / self.batch_size)
        drawn = torch.randint(len(self), (self.updates, self.batch_size), generator=self.generator)
        for index in drawn:
            yield index, weight

    def state_dict(self) -> State:
        state = {"store": self.store, "seen": self.seen, "generator": self.generator.get_state()}
        return state if self.frames is None else state | {"frames": self.frames.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.store, self.seen = dict(state["store"]), state["seen"]
        self.generator.set_state(state["generator"])
        places = self.places(self.seen)
        if self.frames is not None and "frames" in state:
            held = [self.store[key][places] for key in SEEN if self.store]
            self.frames.load_state_dict(state["frames"], held)
        elif self.frames is not None and self.store:  # rlkit 0.5 kept every observation twice
            steps = {key: ring[places] for key, ring in self.store.items()}
            self.store, self.seen = {}, self.seen - len(self)
            self.add(steps)
