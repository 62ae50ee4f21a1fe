"""Group sequence policy optimization (Zheng et al. 2025, arXiv:2507.18071): the ratio is that of the whole row.

A reward for a row deserves a ratio for a row: the geometric mean of its steps' ratios. It hardly moves, so the
narrow clip, and a row is clipped as a whole or not at all.
"""

from dataclasses import dataclass

from ._groups import Clip, Clipping, Ratio, Scale
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Clip, Scale):
    ratio: Ratio = "mean"
    clip_low: Clipping = 3e-4
    clip_high: Clipping = 4e-4


make = GRPO
