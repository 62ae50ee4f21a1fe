"""Large observations in a replay: each frame is kept once, and a step holds the numbers of its frames.

What follows a step is what the next step sees, and of a stack of four frames three stood in the stack before. So a
frame that comes again soon after is the one that is there, whichever row, episode or window of n steps it comes in: it
is found by its bytes alone.
"""

import hashlib
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor

from rlkit import memory, spaces
from rlkit.api import State
from rlkit.buffers.storage import Checks, Storage

if TYPE_CHECKING:
    from rlkit.api import AnySpace

SMALL = 4096  # bytes: what takes fewer is kept as it is: to find and count its frames takes 20 µs a step
PART = 1024  # bytes that a frame of several has at least, or they are kept as one
COLORS = 3  # images next to each other are one in colors, and no stack
GROWTH = 16  # each time that there are too few frames, there are made 1 / GROWTH more


@dataclass(frozen=True)
class Layout:
    """The layout of an observation's frames in its row of numbers."""

    size: int  # bytes of a frame
    count: int = 1
    last: bool = False  # along the last axis of the observation, not the first

    def cut(self, observation: Tensor) -> Tensor:
        """[N, d] → [N, count, d / count]"""
        rows, width = len(observation), observation.shape[1] // self.count
        if self.last:
            return observation.reshape(rows, width, self.count).transpose(1, 2)
        return observation.reshape(rows, self.count, width)

    def join(self, frames: Tensor) -> Tensor:
        """The reverse of `cut`."""
        return (frames.transpose(1, 2) if self.last else frames).flatten(1)


def layout(space: "AnySpace") -> Layout | None:
    """How observations of a space are kept by their frames; None: they are small, and kept as they are."""
    shape, dtype = spaces.row(space)
    size = math.prod(shape) * dtype.itemsize
    if size < SMALL:
        return None
    axes = space.shape if isinstance(space, Box) else ()
    last = len(axes) == 3 and axes[-1] <= axes[0]
    count = axes[-1 if last else 0] if len(axes) > 2 else 1
    if size // count < PART or (count == COLORS and len(axes) == 3):
        return Layout(size)
    return Layout(size // count, count, last)


class Frames:
    """The frames that the steps of a replay hold, by number; the numbers of those that nobody holds are given again.

    capacity   steps of the replay, each of which brings one frame, as a rule; where more are needed, more are made
    reach      a frame that came again in none of so many rollouts is not looked for any more
    storage    where the frames are, if not in memory. A number is then given again when `storage.spare` steps have come
               since nobody holds it, by when a checkpoint counts that does not know it: whenever that was written, the
               numbers are the same
    """

    def __init__(self, capacity: int, layout: Layout, reach: int, storage: Storage | None = None) -> None:
        self.capacity, self.layout, self.reach, self.storage = capacity, layout, reach, storage
        self.blocks: list[Tensor] = []
        self.ends: list[int] = []  # of the numbers in each block
        self.holders: NDArray[np.int32] = np.zeros(0, dtype=np.int32)  # of each frame: steps, and `recent`
        self.used = 0  # numbers from here on were never given
        self.free: list[int] = []
        self.kept: deque[tuple[int, int]] = deque()  # after how many steps a number was freed that is not free yet
        self.end = 0  # of the steps, with those that are being added
        self.checks: Checks = np.zeros(0, dtype=np.uint32)  # of the frames in files
        self.recent: dict[bytes, tuple[int, int]] = {}  # digest → number, and the last rollout it came in
        self.rollouts = 0

    @property
    def step_size(self) -> int:
        """The bytes that one step takes at least: a frame, and the numbers of all that it sees and saw next."""
        return self.layout.size + 2 * 4 * self.layout.count

    def put(self, observation: Tensor) -> Tensor:
        """Keep observations [N, d] until their `release`. Returns the numbers of their frames [N, count], int32."""
        if self.storage is None:  # a checkpoint brings them to the CPU
            self.blocks = [block.to(observation.device) for block in self.blocks]
        frames = self.layout.cut(observation).flatten(0, 1).contiguous()
        rows = frames.cpu().view(torch.uint8).numpy()
        numbers, new = np.empty(len(rows), dtype=np.int32), []
        for i, row in enumerate(rows):
            digest = hashlib.sha256(row).digest()
            known = self.recent.get(digest)
            if known is None:
                new.append(i)
            numbers[i] = known[0] if known else self._take(frames, digest)
            self.recent[digest] = int(numbers[i]), self.rollouts
        self._write(frames[torch.tensor(new, dtype=torch.long)], numbers[new])
        np.add.at(self.holders, numbers, 1)
        return torch.from_numpy(numbers).view(-1, self.layout.count).to(observation.device)

    def get(self, numbers: Tensor) -> Tensor:
        """The observations that have these frames. [N, count] → [N, d]"""
        flat, begin = numbers.flatten(), self.ends[0]
        found = self.blocks[0].index_select(0, flat.clamp(max=begin - 1))  # most are in the first block
        for block, end in zip(self.blocks[1:], self.ends[1:], strict=True):
            here = ((flat >= begin) & (flat < end)).nonzero()[:, 0]
            found[here] = block.index_select(0, flat[here] - begin)
            begin = end
        return self.layout.join(found.view(*numbers.shape, found.shape[1]))

    def release(self, numbers: Tensor) -> None:
        """Reduce the reference count of these frames by one for each time that they are listed."""
        named = numbers.flatten().cpu().numpy()
        np.subtract.at(self.holders, named, 1)
        freed = [int(number) for number in np.unique(named) if not self.holders[number]]
        if self.storage is None:
            self.free += freed
        else:
            self.kept += [(self.end, number) for number in freed]

    def begin(self, end: int) -> None:
        """Steps will be added, up to step number `end`."""
        self.end = end
        while self.storage is not None and self.kept and self.kept[0][0] <= end - self.storage.spare:
            self.free.append(self.kept.popleft()[1])

    def next_rollout(self) -> None:
        """Drop the digests of frames that have not been seen again for a long time."""
        self.rollouts += 1
        old = [digest for digest, (_, came) in self.recent.items() if came < self.rollouts - self.reach]
        if old:
            self.release(torch.tensor([self.recent.pop(digest)[0] for digest in old]))

    def _take(self, like: Tensor, digest: bytes) -> int:
        """A number that nobody has, held by `recent`, for the frame with this digest."""
        if not self.free and self.used == len(self.holders):
            self._grow(like)
        number = self.free.pop() if self.free else self.used
        self.used = max(self.used, number + 1)
        self.holders[number] = 1
        if self.storage is not None:
            self.checks[number] = check(digest)
        return number

    def _grow(self, like: Tensor) -> None:
        """Make room for more frames; what is not written yet takes no memory."""
        there = len(self.holders)
        more = there // GROWTH + 1 if there else self.capacity + (self.storage.spare if self.storage else 0)
        if self.storage is not None:
            self.storage.check_space(more * self.layout.size, "make room there and resume the run")
            self.blocks.append(self.storage.new(f"frames-{len(self.blocks)}", like, more))
        else:
            what = f"a replay buffer of algo.capacity={self.capacity} steps with {there + more} frames"
            memory.check(more * self.layout.size, what, "start a new run with a smaller one")
            self.blocks.append(like.new_zeros(more, like.shape[1]))
        self._count(np.zeros(0, dtype=np.int64))

    def _write(self, frames: Tensor, numbers: NDArray[np.int32]) -> None:
        places = torch.from_numpy(numbers).long().to(frames.device)
        begin = 0
        for block, end in zip(self.blocks, self.ends, strict=True):
            here = (places >= begin) & (places < end)
            block[places[here] - begin] = frames[here]
            begin = end

    def _count(self, held: NDArray[np.int64]) -> None:
        """Follow the blocks: where each ends, and a count for each frame, with those that are held besides."""
        self.ends = np.cumsum([len(block) for block in self.blocks]).tolist()
        total = self.ends[-1] if self.ends else 0
        holders = np.bincount(held, minlength=total).astype(np.int32)
        if len(holders) > total:
            raise ValueError(f"there is no frame {len(holders) - 1}")
        holders[: len(self.holders)] += self.holders
        self.holders = holders
        if self.storage is not None:
            self.checks = np.concatenate([self.checks, np.zeros(total - len(self.checks), dtype=np.uint32)])

    def state_dict(self) -> State:
        recent = [[digest.hex(), number, came] for digest, (number, came) in self.recent.items()]
        state: State = {"blocks": self.blocks, "recent": recent, "used": self.used, "rollouts": self.rollouts}
        state["free"] = self.free
        if self.storage is not None:
            state["kept"] = [torch.tensor(list(self.kept))] if self.kept else []
            state["blocks"], state["sizes"] = [x[:0] for x in self.blocks], [len(x) for x in self.blocks]
            state["checks"] = [torch.from_numpy(self.checks.view(np.int32))] if self.blocks else []
        return state

    def load_state_dict(self, state: State, held: Iterable[Tensor]) -> None:
        """`held`: the numbers that the steps hold."""
        self.blocks, self.used, self.free = list(state["blocks"]), state["used"], list(state["free"])
        if self.storage is not None:
            sized = enumerate(zip(self.blocks, state["sizes"], strict=True))
            self.blocks = [self.storage.open(f"frames-{i}", like, size) for i, (like, size) in sized]
            self.kept = deque((end, number) for kept in state["kept"] for end, number in kept.tolist())
            for checks in state["checks"]:  # none before the first step
                self.checks = checks.numpy().view(np.uint32).copy()
        self.recent = {bytes.fromhex(digest): (number, came) for digest, number, came in state["recent"]}
        self.rollouts, self.holders = state["rollouts"], np.zeros(0, dtype=np.int32)
        steps = [numbers.flatten().cpu().numpy() for numbers in held]
        recent = np.array([number for number, _ in self.recent.values()], dtype=np.int64)
        self._count(np.concatenate([recent, *steps]).astype(np.int64))
        if self.storage is not None:
            self._verify(self.storage)

    def _verify(self, storage: Storage) -> None:
        """Refuse files that hold other frames than when the checkpoint was written."""
        begin = 0
        for block, end in zip(self.blocks, self.ends, strict=True):
            for number in np.flatnonzero(self.holders[begin:end]):
                digest = hashlib.sha256(block[number].view(torch.uint8).numpy().data).digest()
                if check(digest) != self.checks[begin + number]:
                    raise storage.wrong("it holds other frames")
            begin = end


def check(digest: bytes) -> int:
    """As much of a digest as is kept of each frame."""
    return int.from_bytes(digest[:4], "little")


def frames_of(space: "AnySpace | None", capacity: int, reach: int, storage: Storage | None = None) -> Frames | None:
    """For the observations of a space, where they are large."""
    found = None if space is None else layout(space)
    return None if found is None else Frames(capacity, found, reach, storage)
