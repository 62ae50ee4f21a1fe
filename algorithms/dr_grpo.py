"""Dr. GRPO, "GRPO done right" (Liu et al. 2025, arXiv:2503.20783): neither of GRPO's two divisions.

Dividing by the group's deviation favors questions of uneven difficulty, dividing by a row's length favors short right
answers and long wrong ones. Here advantages are only centered and every step is divided by one constant.
"""

from dataclasses import dataclass

from ._groups import Clip, Divisor, Over, Scale
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Clip, Scale):
    scale: Divisor = "none"
    over: Over = "constant"


make = GRPO
