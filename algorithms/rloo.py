"""REINFORCE leave-one-out (Ahmadian et al. 2024, arXiv:2402.14740): the other attempts are the baseline.

The whole attempt is one action: its probability is the product over its steps, and the KL penalty is part of its
reward. With one update per rollout it is REINFORCE with a baseline that owes nothing to the attempt.
"""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from rlkit import returns

from . import grpo


@dataclass(frozen=True)
class Config(grpo.Config):
    ratio: Literal["token", "mean", "sum"] = "sum"  # of a step; of its row: the geometric mean, or the whole product
    kl: Literal["k1", "k2", "k3", "unbiased"] = "k1"  # its estimator: losses.kl_k1 ... losses.kl_unbiased
    kl_in: Literal["loss", "reward"] = "reward"  # where the penalty goes; k1 only works in the reward


class RLOO(grpo.GRPO):
    unused = ("scale", "std", "std_eps")

    def advantage(self, score: Tensor) -> Tensor:
        return returns.leave_one_out(score)


SAME: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "kl": "k1", "kl_in": "reward"}
PRESETS = {
    "paper": SAME | {"ratio": "sum", "over": "sequence"},
    "trl": SAME | {"ratio": "sum", "over": "sequence", "kl_coef": 0.05},
    "verl": SAME | {"ratio": "token", "over": "token", "kl_coef": 0.0, "dual_clip": 3.0},
    "openrlhf": SAME | {"ratio": "token", "over": "token", "kl_coef": 0.0},
    "di_engine": SAME | {"ratio": "token", "over": "sequence", "kl_coef": 0.0},
}
make = RLOO
