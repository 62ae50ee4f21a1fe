"""Building blocks for the configurations of the GRPO family: each holds keys and the formula that reads them.

`Groups` holds the keys of every member, `Scale` the divisor of the advantage, `Clip` the clipped surrogate. A member
with a different formula replaces a part by its own keys and formula. So a key exists only where it has an effect.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt
from tensordict import TensorDict
from torch import Tensor

from rlkit import divergences, group_scores, losses, policies
from rlkit.errors import UserError
from rlkit.fields import AGAIN, INEXACT, Boundless, Count, Limit, Needs, NonNegative

Ratio = Literal["token", "mean", "sum"]
Over = Literal["sequence", "token", "constant"]
Estimator = Literal["k1", "k2", "k3", "unbiased"]
Place = Literal["loss", "reward"]
Divisor = Literal["std", "batch", "none"]
Deviation = Literal["unbiased", "biased"]
Starts = Annotated[Literal["shared", "own"], Needs("group", but=1)]
PENALIZED = Needs("kl_coef")
FIXED = Needs("over", "constant")
SCALED = Needs("scale", "std", "batch")
MOVED = Needs(AGAIN)
Clipping = Annotated[Limit, MOVED]
Bound = Annotated[float, Gt(1), Boundless()]


@dataclass(frozen=True)
class Groups(policies.Optimization, ABC):
    """The keys of every member."""

    group: Annotated[int, Ge(2)] = 8  # attempts from each start, which are compared with each other
    starts: Starts = "shared"  # starts of a group: shared (one start), or own (unrelated episodes)
    epochs: Count = 1  # passes over each rollout; those after the first are off-policy
    minibatches: Count = 1  # minibatches of each pass, one optimizer step each
    ratio: Ratio = "token"  # importance ratio per token, or per completion: geometric mean (mean) or product (sum)
    over: Over = "sequence"  # how the loss is averaged: equal weight per completion, per token, or a fixed divisor
    length: Annotated[Count | None, FIXED] = None  # fixed divisor, in steps; none: the longest possible attempt
    kl_coef: NonNegative = 0.0  # β: weight of the KL penalty to the starting policy
    kl: Annotated[Estimator, PENALIZED] = "k3"  # estimator of the KL divergence, see rlkit.divergences
    kl_in: Annotated[Place, PENALIZED] = "loss"  # where the KL penalty is added; kl=k1 works in the reward only
    kl_clip: Annotated[Limit | None, PENALIZED] = None  # the KL estimate of a step is clipped to ± kl_clip
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus
    sampler_cap: Annotated[Limit | None, Needs(INEXACT)] = 2.0  # bound of the sampler's weight π/μ; none: 1

    def __post_init__(self) -> None:
        if self.kl_clip and self.kl == "unbiased":
            raise UserError("algo.kl_clip would bias algo.kl=unbiased: give one of them")
        if self.kl_coef and self.kl_in == "loss" and self.kl == "k1":
            raise UserError(
                "algo.kl=k1 with algo.kl_in=loss would do nothing: the expected gradient of k1 is zero; "
                "use algo.kl_in=reward, or algo.kl=k2, k3 or unbiased"
            )
        if self.in_reward and self.kl == "unbiased":
            raise UserError("algo.kl=unbiased corrects a gradient and a reward has none; use algo.kl=k1, k2 or k3")

    @property
    def repeats(self) -> int:
        """How many attempts are made from each start."""
        return self.group if self.starts == "shared" else 1

    @property
    def in_reward(self) -> bool:
        """Whether the reward pays the KL penalty."""
        return self.kl_coef > 0 and self.kl_in == "reward"

    def divergence(self, log_prob: Tensor, batch: TensorDict, log_ratio: Tensor | None = None) -> Tensor:
        """The estimate of KL(π‖π_ref) at each step."""
        ref = batch["ref_log_prob"]
        if self.kl == "unbiased" and log_ratio is not None:
            return divergences.kl_unbiased(log_prob, ref, log_ratio)
        kl = {"k1": divergences.kl_k1, "k2": divergences.kl_k2, "k3": divergences.kl_k3}[self.kl](log_prob, ref)
        return kl if self.kl_clip is None else kl.clamp(-self.kl_clip, self.kl_clip)

    def clip_width(self) -> float:
        """The largest deviation of the ratio from 1 that is never clipped."""
        return math.inf

    def advantage(self, score: Tensor) -> Tensor:
        """The advantage of each attempt: its score minus the mean score of its group. [P, G] → [P, G]."""
        return group_scores.group_centered(score)

    @abstractmethod
    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """The loss of each step and whether it is clipped (bool), both [B, T]; log_ratio follows `ratio`."""


@dataclass(frozen=True)
class Scale(Groups):
    """The advantage is divided by a standard deviation."""

    scale: Divisor = "std"  # divisor of advantages: standard deviation of the group (std), of the batch, or none
    std: Annotated[Deviation, SCALED] = "unbiased"  # standard deviation with n − 1 (unbiased) or n (biased)
    std_eps: Annotated[NonNegative, SCALED] = 1e-4  # added to the standard deviation

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.in_reward and self.scale == "std":
            raise UserError(
                "algo.kl_in=reward with algo.scale=std would blow up what the penalty differs by within groups of "
                "equal scores; use algo.scale=none or batch, or algo.kl_in=loss"
            )

    def advantage(self, score: Tensor) -> Tensor:
        if self.scale == "none":
            return super().advantage(score)
        relative = group_scores.group_relative if self.scale == "std" else group_scores.batch_relative
        return relative(score, self.std_eps, correction=int(self.std == "unbiased"))


@dataclass(frozen=True)
class Clip:
    """PPO's clipped surrogate."""

    clip_low: Clipping = 0.2  # lower clip: the ratio is clipped at 1 − clip_low
    clip_high: Clipping = 0.2  # upper clip: the ratio is clipped at 1 + clip_high
    dual_clip: Annotated[Bound | None, MOVED] = None  # c: the loss of a negative advantage A is at most c · |A|

    def clip_width(self) -> float:
        return min(self.clip_low, self.clip_high)

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> tuple[Tensor, Tensor]:
        advantage = batch["advantage"]
        each = losses.clipped_surrogate(log_ratio, advantage, self.clip_low, self.clip_high)
        if self.dual_clip:
            each = losses.dual_clipped(each, advantage, self.dual_clip)
        return each, losses.clipped(log_ratio, advantage, self.clip_low, self.clip_high)
