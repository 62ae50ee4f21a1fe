"""Estimates of KL(π‖π_ref) from the log-probabilities of the actions that were taken, one per action.

Schulman 2020, http://joschu.net/blog/kl-approx.html. Both arguments have one and the same shape.
"""

import math

import torch
from torch import Tensor

from rlkit.shapes import same_shape

FAR = 20.0  # log-ratios are clamped to ±20 before exp, which overflows float32 at 88
ROUNDING = 4096  # units in the last place by which two computations of one log-probability may differ


def beyond_rounding(log_prob: Tensor, ref_log_prob: Tensor, mask: Tensor) -> Tensor:
    """log π_ref of a rollout; log π itself where they differ by rounding alone in every acted step.

    So it is until the first update: the engine that writes a text adds in another order than the reference that reads
    it. The divergence is then exactly 0. Where nothing else is earned, standardized advantages and Adam would enlarge
    the rounding to full size.
    """
    same_shape(log_prob=log_prob, ref_log_prob=ref_log_prob, mask=mask)
    scale = torch.finfo(log_prob.dtype).eps * log_prob.abs().clamp(min=1)
    near = (log_prob - ref_log_prob).abs() <= ROUNDING * scale
    return torch.where((near | ~mask).all(), log_prob, ref_log_prob)


def kl_k1(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """log π − log π_ref: an unbiased estimate of KL(π‖π_ref) for actions drawn from π, with high variance.

    Use it in rewards: as a loss its expected gradient is E[∇log π] = 0.
    """
    same_shape(log_prob=log_prob, ref_log_prob=ref_log_prob)
    return log_prob - ref_log_prob


def kl_k2(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """½(log π − log π_ref)²: biased in value; on-policy its expected gradient is exactly that of KL(π‖π_ref)."""
    same_shape(log_prob=log_prob, ref_log_prob=ref_log_prob)
    return 0.5 * (log_prob - ref_log_prob).square()


def kl_k3(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """π_ref/π − log(π_ref/π) − 1 ≥ 0: an unbiased estimate of KL(π‖π_ref) for actions drawn from π.

    GRPO's penalty, arXiv:2402.03300, eq. 4. Beyond a log-ratio of 20 it continues as a straight line: float32 does not
    overflow, and the gradient does not vanish.
    """
    same_shape(log_prob=log_prob, ref_log_prob=ref_log_prob)
    gap = ref_log_prob - log_prob
    return gap.clamp(max=FAR).expm1() + math.exp(FAR) * (gap - FAR).clamp(min=0) - gap


def kl_unbiased(log_prob: Tensor, ref_log_prob: Tensor, log_ratio: Tensor) -> Tensor:
    """ρ·k3: unbiased in value and in gradient, also when the actions come from an older policy, ρ = π/π_b.

    DeepSeek-V3.2 2025, arXiv:2512.02556. The gradient flows through ρ as well.
    """
    same_shape(log_prob=log_prob, ref_log_prob=ref_log_prob, log_ratio=log_ratio)
    return log_ratio.clamp(-FAR, FAR).exp() * kl_k3(log_prob, ref_log_prob)
