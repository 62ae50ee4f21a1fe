"""Remembers: rollouts, replay, prioritized replay, windows, what a policy notes, and how batches are split."""

from rlkit.buffers.frames import Frames, Layout, frames_of
from rlkit.buffers.noting import recorded
from rlkit.buffers.prioritized import Prioritized, SumTree
from rlkit.buffers.replay import Replay
from rlkit.buffers.rollout import Rollout
from rlkit.buffers.splitting import (
    batch_of,
    beginnings,
    check_rows,
    concatenate,
    cut_short,
    flatten_groups,
    flatten_steps,
    in_parts,
    in_step,
    last_step,
    learned_by_all,
    mine_of,
    of_all,
    per_step,
    split,
)
from rlkit.buffers.storage import Storage
from rlkit.buffers.windows import Window

__all__ = [
    "Frames",
    "Layout",
    "Prioritized",
    "Replay",
    "Rollout",
    "Storage",
    "SumTree",
    "Window",
    "batch_of",
    "beginnings",
    "check_rows",
    "concatenate",
    "cut_short",
    "flatten_groups",
    "flatten_steps",
    "frames_of",
    "in_parts",
    "in_step",
    "last_step",
    "learned_by_all",
    "mine_of",
    "of_all",
    "per_step",
    "recorded",
    "split",
]
