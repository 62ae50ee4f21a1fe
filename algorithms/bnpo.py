"""Beta normalisation policy optimisation (Xiao et al. 2025, arXiv:2506.02864): the scale follows the policy.

GRPO divides by √(p(1 − p)) of each start's success rate p, whatever the other rates are. Here a Beta distribution is
fitted to the rates of all starts, and its density at p divides. Returns outside [0, 1] are first brought there by the
rollout's range.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from rlkit import returns
from rlkit.api import Env

from . import grpo


@dataclass(frozen=True)
class Config(grpo.Config):
    beta: bool = True  # divide by the Beta density; false leaves algo.scale as it is in grpo
    over: Literal["sequence", "token", "constant"] = "token"  # what counts the same in the loss: losses.reduction


class BNPO(grpo.GRPO):
    def __init__(self, config: Config, env: Env, network: Any) -> None:
        self.unused = ("scale", "std", "std_eps") if config.beta else ()
        super().__init__(config, env, network)

    def advantage(self, score: Tensor) -> Tensor:
        if not self.config.beta:
            return super().advantage(score)
        low = torch.clamp(score.min(), max=0.0)
        return returns.beta_relative((score - low) / (torch.clamp(score.max(), min=1.0) - low))


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"beta": True, "over": "token"},
    "trl": {
        "beta": False,
        "over": "token",
        "std_eps": 1e-4,
        "kl": "unbiased",
    },  # its bnpo is a way to average, not the normaliser
}
make = BNPO
