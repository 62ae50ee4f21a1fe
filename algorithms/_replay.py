"""Shared code of algorithms that learn from replayed steps: the buffer and its keys, n-step sums, priorities.

A step is learned from many times. n > 1 sums rewards as in Rainbow (arXiv:1710.02298, uncorrected for exploration);
`prioritized` is arXiv:1511.05952.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Gt, Le
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, memory, policies, returns
from rlkit.api import Algorithm, Env
from rlkit.errors import UserError
from rlkit.fields import Choose, Count, Fraction, Natural, Needs, Output, Search
from rlkit.paths import home

PRIORITIZED = Needs("prioritized", True)
Weights = Annotated[Fraction, PRIORITIZED, Needs("alpha")]
Following = Annotated[float, Gt(0), Le(1), Search(1e-3, 0.05, log=True)]


@dataclass(frozen=True)
class Replayed(policies.Optimization):
    """The keys of every member."""

    steps: Count = 4  # environment steps per row and iteration
    updates: Count = 1  # optimizer steps per iteration
    capacity: Count = 50_000  # steps the replay buffer holds
    batch_size: Annotated[Count, Choose(32, 64, 128, 256)] = 64  # steps per optimizer step
    warmup_steps: Natural = 1_000  # steps remembered before the first update
    gamma: Fraction = 0.99  # discount per step
    n_step: Annotated[Count, Choose(1, 3, 5)] = 1  # rewards summed before the bootstrap
    prioritized: bool = False  # replay steps in proportion to (|TD error| + ε)^alpha, not evenly
    storage: Output | None = None  # folder in whose files the replay is kept, in place of memory and checkpoints
    alpha: Annotated[Fraction, PRIORITIZED] = 0.6  # exponent of the priorities; 0 replays evenly
    beta: Weights = 0.4  # exponent of the importance weights at the start; it rises to 1


class OffPolicy(Algorithm):
    """Remembers single steps and counts its updates. A member makes `policy`, `target` and `optimizer`."""

    saved = (*Algorithm.saved, "target", "window", "updates", "policy.epsilon")
    divides = False  # priorities and the draws of a loss are of whole minibatches
    config: Replayed
    buffer: buffers.Replay

    def __init__(self, config: Replayed, env: Env) -> None:
        c = self.config = config
        self.updates, self.played = 0, env.rows * c.steps  # steps that one iteration plays
        columns = max(1, -(-c.warmup_steps // env.rows)) + c.n_step - 1  # of steps; the newest wait for their sums
        waiting = -(-columns // c.steps) - 1  # iterations without an update
        if 0 < c.warmup <= waiting:
            raise UserError(
                f"algo.warmup={c.warmup} is over before anything is learned: algo.warmup_steps={c.warmup_steps} takes "
                f"{waiting} iterations; give algo.warmup={waiting + 1} or more, or leave it out"
            )
        policies.check_reach(env, "algo.n_step", c.n_step)
        policies.check_rollout(env, "algo.steps", c.steps, c.steps)
        storage = None
        if c.storage is not None:
            storage = buffers.Storage(Path(os.path.realpath(home(c.storage))), self.played, c.capacity)
        frames = buffers.frames_of(env.observation_space, c.capacity, 1 + -(-c.n_step // c.steps), storage)
        step = policies.step_size(env, frames.step_size if frames else None)
        at_once = 4 * (storage is not None) + 16 * c.prioritized  # checksums, and the tree of priorities
        self.step_size = at_once + step * (storage is None)
        self.check_capacity(at_once)
        drawn = f"algo.batch_size={c.batch_size} with algo.updates={c.updates}"
        memory.check(8 * c.batch_size * c.updates, drawn, "give less")
        self.window = buffers.Window(c.n_step - 1)
        sizes = (env.seed, c.capacity, c.batch_size, c.updates, c.warmup_steps)
        if c.prioritized:
            self.buffer = buffers.Prioritized(*sizes, c.alpha, c.beta, frames, storage)
        else:
            self.buffer = buffers.Replay(*sizes, frames, storage)

    def check_memory(self) -> None:
        """Refuse a replay that is too small or will not fit, before a run begins; what is only measured needs none."""
        if self.config.capacity < self.played:
            raise UserError(
                f"algo.capacity={self.config.capacity} is less than the {self.played} steps that one iteration plays: "
                f"give algo.capacity={self.played} or more, or less of algo.steps or env.rows"
            )
        self.check_capacity(self.step_size)

    def check_capacity(self, step_size: int) -> None:
        """Refuse a capacity whose steps, of so many bytes each, do not fit."""
        memory.check(self.config.capacity * step_size, f"algo.capacity={self.config.capacity}", "give a smaller one")

    def anneal(self) -> None:
        """Raise the exponent β of the importance weights linearly from `beta` to 1 over the run."""
        if isinstance(self.buffer, buffers.Prioritized):
            self.buffer.beta = self.config.beta + (1 - self.config.beta) * self.progress

    def credit(self, rollout: TensorDict) -> TensorDict:
        """Replace rewards by n-step sums and successors by the states after them; replay adds the bootstrap."""
        if self.config.n_step == 1:
            return rollout.set("discount", torch.full_like(rollout["reward"], self.config.gamma))
        joined = self.window.join(rollout)  # [B, n - 1 + steps]
        total, last, discount = returns.n_step(joined["reward"], joined["done"], self.config.gamma, self.config.n_step)
        row = torch.arange(len(last), device=last.device).unsqueeze(-1)
        after = {key: joined[key][row, last] for key in ("next_observation", "terminated", "done")}
        return self.window.ready(joined.update({"reward": total, "discount": discount, **after}))

    def after_step(self, learned: Sequence[tuple[TensorDict, dict[str, Tensor]]]) -> None:
        """Set the priorities of the replayed steps. A member then moves its target."""
        if isinstance(self.buffer, buffers.Prioritized):
            for batch, metrics in learned:
                self.buffer.update(batch["index"], metrics["td_error"])
        self.updates += 1
