"""Off-policy memory: a ring of the newest steps."""

from collections.abc import Iterator

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import seeding
from rlkit.api import State
from rlkit.buffers.columns import Columns, kinds_of
from rlkit.buffers.frames import Frames
from rlkit.buffers.splitting import acted_steps, batch_of, check_alike, check_columns, refuse_taken
from rlkit.buffers.storage import Checks, Storage, bytes_each, checksums
from rlkit.counters import natural

SEEN = ("observation", "next_observation")  # what `frames` keeps: of these the store holds numbers
PIECE = 4096  # steps whose checksums are computed at a time


class Replay:
    """Off-policy memory: a ring of the newest `capacity` steps, sampled uniformly with replacement.

    Each iteration yields `updates` minibatches of `batch_size` steps, none before `warmup` steps were seen (Lin 1992;
    Mnih et al. 2015). With `frames`, which are for large observations, each frame is kept once. With `storage` the ring
    lies in files, and has spare places: what a checkpoint needs stays until the next one counts. What is drawn does not
    depend on either.
    """

    def __init__(
        self,
        seed: int,
        capacity: int,
        batch_size: int,
        updates: int,
        warmup: int,
        frames: Frames | None = None,
        storage: Storage | None = None,
    ) -> None:
        self.capacity, self.batch_size, self.updates, self.warmup = capacity, batch_size, updates, warmup
        self.generator = seeding.generator(seed, "replay")
        self.store: dict[str, Tensor] = {}
        self._columns = Columns(self.store)
        self.frames, self.storage = frames, storage
        self.slots = capacity + (storage.spare if storage else 0)
        self.checks: Checks = np.zeros(self.slots if storage else 0, dtype=np.uint32)  # of the steps in the files
        self.seen = 0  # steps ever added

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def extend(self, rollout: TensorDict) -> None:
        refuse_taken(rollout, "index", "weight")
        steps = acted_steps(rollout)
        if len(steps["mask"]) > self.capacity:
            steps = {key: x[-self.capacity :] for key, x in steps.items()}
        self.add(steps)

    def add(self, steps: dict[str, Tensor]) -> None:
        """Remember at most `capacity` steps, [N] each."""
        if not len(next(iter(steps.values()))):  # with n-step sums the first ones wait
            return
        if self.storage is not None:
            steps = self.storage.taken(steps, self.seen)
            if not self.store:
                self.storage.begin(self.size(steps))
        if self.frames is not None:
            steps = steps | self.framed(self.frames, steps)
        if not self.store:
            self.store = {key: self.ring(key, x) for key, x in steps.items()}
        elif (device := steps["mask"].device) != self.store["mask"].device:  # a checkpoint brings them to the CPU
            self.store = {key: x.to(device) for key, x in self.store.items()}
        columns = self.columns()
        if columns.kinds != kinds_of(steps):
            check_alike(self.store, steps, 1)  # of a checkpoint that was changed they are not
        count, start = len(steps["mask"]), self.seen % self.slots
        over = max(0, start + count - self.slots)  # the last ones go to the beginning
        columns.write(start, start + count - over, steps)
        if over:
            columns.write(0, over, steps, count - over)
        if self.storage is not None:
            self.checks[(self.seen + np.arange(count)) % self.slots] = checksums([steps[key] for key in self.store])
        self.seen += count

    def columns(self) -> Columns:
        if self._columns.store is not self.store:
            self._columns = Columns(self.store)
        return self._columns

    def ring(self, key: str, like: Tensor) -> Tensor:
        """Allocate memory for all slots."""
        if self.storage is not None:
            return self.storage.new(key, like, self.slots)
        return like.new_zeros((self.slots, *like.shape[1:]))

    def size(self, steps: dict[str, Tensor]) -> int:
        """The bytes that such steps will take at least."""
        if self.frames is None:
            return self.slots * sum(map(bytes_each, steps.values()))
        rest = sum(bytes_each(x) for key, x in steps.items() if key not in SEEN)
        return self.slots * (rest + self.frames.step_size)

    def framed(self, frames: Frames, steps: dict[str, Tensor]) -> dict[str, Tensor]:
        """The numbers of what steps see and saw next, whose frames are kept; those of the oldest steps go for them."""
        end = self.seen + len(steps["mask"])
        frames.begin(end)
        forgotten = self.places(end - self.capacity)
        for key, ring in self.store.items():
            if key in SEEN:
                frames.release(ring[forgotten.to(ring.device)])
        found = {key: frames.put(steps[key]) for key in SEEN}
        frames.next_rollout()
        return found

    def places(self, end: int) -> Tensor:
        """Where the steps are that are remembered, from the oldest on and before step number `end`."""
        return torch.arange(self.seen - len(self), max(end, self.seen - len(self))) % self.slots

    def __iter__(self) -> Iterator[TensorDict]:
        if self.seen < max(self.warmup, 1):
            return
        for index, weight in self.draw():
            data = self.columns().read(self.where(index))
            if self.frames is not None:
                data |= {key: self.frames.get(data[key]) for key in SEEN}
            if self.storage is not None:
                data = {key: x.to(self.storage.device) for key, x in data.items()}
            device = data["mask"].device
            data |= {"index": index.to(device), "weight": weight.to(device, copy=True)}
            yield batch_of(data, self.batch_size)

    def where(self, index: Tensor) -> Tensor:
        """The places of steps, of which index i is the newest whose number is i modulo capacity."""
        if self.slots == self.capacity:
            return index
        return (self.seen - 1 - (self.seen - 1 - index) % self.capacity) % self.slots

    def draw(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The indices of each minibatch, and the weight of each of its steps in the loss: [batch_size] both."""
        weight = torch.full((self.batch_size,), 1 / self.batch_size)
        drawn = torch.randint(len(self), (self.updates, self.batch_size), generator=self.generator)
        for index in drawn.unbind():
            yield index, weight

    def save_is_due(self) -> bool:
        """Whether the next steps may need the places that the newest checkpoint needs."""
        return self.storage is not None and self.storage.is_full(self.seen)

    def flush(self) -> None:
        """Flush to disk the steps that a checkpoint refers to."""
        if self.storage is not None:
            self.storage.flush()

    def saved(self) -> None:
        """Confirm a checkpoint: steps that only the previous one needed may be overwritten."""
        if self.storage is not None and self.store:
            self.storage.keep(self.seen)

    def close(self) -> None:
        if self.storage is not None:
            self.storage.close()

    def state_dict(self) -> State:
        state: State = {"store": self.store, "seen": self.seen, "generator": self.generator.get_state()}
        if self.frames is not None:
            state["frames"] = self.frames.state_dict()
        if self.storage is not None:  # which keys there are, of what type
            state["store"] = {key: ring[:0] for key, ring in self.store.items()}
            state["checks"] = torch.from_numpy(self.checks.view(np.int32))
        return state

    def load_state_dict(self, state: State) -> None:
        self.store = check_columns(state["store"], 0 if self.storage else self.slots)
        self.seen = natural(state["seen"])
        if bool(self.store) != bool(self.seen):
            raise ValueError(f"{self.seen} steps were seen, and {len(self.store)} columns are kept")
        self.generator.set_state(state["generator"])
        if self.storage is not None and self.store:
            self.storage.take()
            self.store = {key: self.storage.open(key, like, self.slots) for key, like in self.store.items()}
            self.checks = state["checks"].numpy().view(np.uint32).copy()
            self.verify(self.storage)
        places = self.places(self.seen)
        if self.store and not bool(self.store["mask"][places.to(self.store["mask"].device)].all()):
            raise ValueError(f"of {len(places)} steps that are remembered nobody played some")
        if self.frames is not None and "frames" in state:
            held = [self.store[key][places] for key in SEEN if self.store]
            self.frames.load_state_dict(state["frames"], held)
        elif self.frames is not None and self.store:  # rlkit 0.5 kept every observation twice
            steps = {key: ring[places] for key, ring in self.store.items()}
            self.store, self.seen = {}, self.seen - len(self)
            self.add(steps)
        if self.storage is not None and self.store:
            self.storage.keep(self.seen)

    def verify(self, storage: Storage) -> None:
        """Raises: UserError where the files changed since the checkpoint was written."""
        for piece in torch.split(self.places(self.seen), PIECE):
            found = checksums([ring[piece] for ring in self.store.values()])
            if not np.array_equal(found, self.checks[piece.numpy()]):
                raise storage.wrong("it holds other steps")
