"""Dr. GRPO, "GRPO done right" (Liu et al. 2025, arXiv:2503.20783): neither of GRPO's two divisions.

Dividing by the group's deviation favours questions of uneven difficulty, dividing by a row's length favours short right
answers and long wrong ones. Here advantages are only centred and every step is divided by one constant.
"""

from dataclasses import dataclass
from typing import Any, Literal

from . import grpo


@dataclass(frozen=True)
class Config(grpo.Config):
    scale: Literal["std", "batch", "none"] = "none"  # divide advantages by the group's, the batch's or no deviation
    over: Literal["sequence", "token", "constant"] = "constant"  # what counts the same in the loss: losses.reduction


class DrGRPO(grpo.GRPO):
    """Nothing but other defaults."""


SAME: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "scale": "none", "over": "constant", "kl_coef": 0.0}
PRESETS = {
    "paper": SAME,
    "trl": SAME | {"kl": "unbiased"},
    "verl": SAME | {"dual_clip": 3.0, "kl_clip": 10.0},
    "openrlhf": SAME | {"over": "token", "kl_clip": 10.0},
}
make = DrGRPO
