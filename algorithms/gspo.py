"""Group sequence policy optimisation (Zheng et al. 2025, arXiv:2507.18071): the ratio is that of the whole row.

A reward for a row deserves a ratio for a row: the geometric mean of its steps' ratios. It hardly moves, hence the
narrow clip, and a row is clipped as a whole or not at all.
"""

from dataclasses import dataclass
from typing import Any, Literal

from rlkit.fields import Positive

from . import grpo


@dataclass(frozen=True)
class Config(grpo.Config):
    ratio: Literal["token", "mean", "sum"] = "mean"  # of a step; of its row: the geometric mean, or the whole product
    clip_low: Positive = 3e-4  # the ratio stays above 1 - clip_low
    clip_high: Positive = 4e-4  # and below 1 + clip_high


class GSPO(grpo.GRPO):
    """Nothing but other defaults."""


SAME: dict[str, Any] = {"ratio": "mean", "kl_coef": 0.0, "clip_low": 0.2, "clip_high": 0.2}
PRESETS = {
    "paper": SAME | {"over": "sequence", "std_eps": 0.0, "clip_low": 3e-4, "clip_high": 4e-4},
    "trl": SAME | {"over": "token", "std_eps": 1e-4, "kl": "unbiased"},  # importance_sampling_level alone changed
    "verl": SAME | {"over": "sequence", "std_eps": 1e-6, "kl_clip": 10.0},
    "openrlhf": SAME | {"over": "sequence", "std_eps": 1e-9, "kl_clip": 10.0},
}
make = GSPO
