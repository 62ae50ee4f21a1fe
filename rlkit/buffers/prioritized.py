"""Prioritized replay (Schaul et al. 2015, arXiv:1511.05952): surprising steps are replayed more often, and weigh less.

P(i) = p_i / Σ_j p_j with p_i = (|δ_i| + ε)^α,   w_i = (N·P(i))^−β / max_j w_j over the minibatch.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import State
from rlkit.buffers.frames import Frames
from rlkit.buffers.replay import Replay
from rlkit.buffers.storage import Storage

Index = NDArray[np.int64]
Numbers = NDArray[np.float64]
EPS = 1e-6  # added to |δ|, so that no step is lost for good


class SumTree:
    """Non-negative priorities under a binary tree of their sums: a batch is changed, or searched, in log₂ n steps.

    node[1] is the root, the children of node i are 2i and 2i + 1, and the leaves follow `size`, a power of two; those
    beyond `capacity` stay 0. Each sum is that of its two children, so the tree is a function of its leaves alone.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.size = capacity, 1 << (capacity - 1).bit_length()
        self.depth = self.size.bit_length() - 1
        self.node: Numbers = np.zeros(2 * self.size)

    @property
    def total(self) -> float:
        return float(self.node[1])

    @property
    def priority(self) -> Numbers:
        """The leaves: [capacity], a view."""
        return self.node[self.size : self.size + self.capacity]

    def update(self, index: Index, priority: Numbers | float) -> None:
        """Set priority[index], and the sums above. Of an index that comes twice the last priority stays."""
        node = index + self.size
        self.node[node] = priority
        left, right = self.node[0::2], self.node[1::2]  # the children of node i are left[i] and right[i]
        for _ in range(self.depth):
            node = node >> 1
            self.node[node] = left[node] + right[node]

    def find(self, mass: Numbers) -> Index:
        """The index i with Σ_{j<i} p_j ≤ mass < Σ_{j≤i} p_j, for each mass in [0, total). Never one of priority 0."""
        node = np.ones(len(mass), dtype=np.int64)
        lefts, rights = self.node[0::2], self.node[1::2]
        for _ in range(self.depth):
            below = lefts[node]
            # Rounding may leave a mass at the end of its subtree: it must not walk on into an empty one.
            right = (mass >= below) & (rights[node] > 0)
            mass = mass - below * right
            node = 2 * node + right
        return node - self.size

    def load(self, priority: Numbers) -> None:
        """Take all priorities at once: [capacity]."""
        self.priority[:] = priority
        for level in range(self.depth - 1, -1, -1):
            first = 1 << level
            self.node[first : 2 * first] = self.node[2 * first : 4 * first].reshape(-1, 2).sum(-1)


class Prioritized(Replay):
    """A replay that draws step i with probability P(i), stratified: one from each of `batch_size` slices of the mass.

    Minibatches carry `index`, for `update` to set the priorities of what was learned from; each is drawn only when it
    is asked for, so a new priority counts at once. New steps get the highest priority seen, so that all are seen once.
    `beta` corrects for the drawing: 0 not at all, 1 fully; the algorithm moves it over the run.
    """

    def __init__(
        self,
        seed: int,
        capacity: int,
        batch_size: int,
        updates: int,
        warmup: int,
        alpha: float,
        beta: float,
        frames: Frames | None = None,
        storage: Storage | None = None,
    ) -> None:
        super().__init__(seed, capacity, batch_size, updates, warmup, frames, storage)
        self.alpha, self.beta = alpha, beta
        self.tree, self.highest = SumTree(capacity), 1.0

    def extend(self, rollout: TensorDict) -> None:
        before = self.seen
        super().extend(rollout)
        self.tree.update(np.arange(before, self.seen) % self.capacity, self.highest)

    def draw(self) -> Iterator[tuple[Tensor, Tensor]]:
        slices = torch.arange(self.batch_size, dtype=torch.float64)
        for _ in range(self.updates):
            where = slices + torch.rand(self.batch_size, generator=self.generator, dtype=torch.float64)
            index = self.tree.find((where * (self.tree.total / self.batch_size)).numpy())
            yield torch.from_numpy(index), torch.from_numpy(self.importance(index)).float() / self.batch_size

    def importance(self, index: Index) -> Numbers:
        """w_i = (N·P(i))^−β / max_j w_j; N and the total cancel."""
        priority = self.tree.priority[index]
        weight: Numbers = (priority / priority.min()) ** -self.beta
        return weight

    def update(self, index: Tensor, error: Tensor) -> None:
        """p_i = (|δ_i| + ε)^α for the steps of a minibatch. index, error: [N]."""
        priority = (error.detach().abs().double().cpu().numpy() + EPS) ** self.alpha
        self.highest = max(self.highest, float(priority.max()))
        self.tree.update(index.cpu().numpy(), priority)

    def state_dict(self) -> State:
        own = {"priority": torch.from_numpy(self.tree.priority.copy()), "highest": self.highest, "beta": self.beta}
        return super().state_dict() | own

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.highest, self.beta = state["highest"], state.get("beta", self.beta)  # 0.3 saved no β
        priority: Numbers = state["priority"].numpy()
        numbers = np.array([self.highest, *priority[: len(self)]])
        if not np.isfinite(numbers).all() or (numbers <= 0).any() or priority[len(self) :].any():
            raise ValueError(
                "a priority of a step that is remembered is not a positive number, or one of another is not 0"
            )
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta is {self.beta}")
        self.tree.load(priority)
