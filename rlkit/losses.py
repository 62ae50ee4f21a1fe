"""Per-element losses and the weights that reduce them, as pure functions. Tensor arguments have equal shapes.

A loss is Σ weight·each. The surrogates below return `each`; `reduction` returns `weight` for a *whole* minibatch, so
that splitting it afterwards (micro-batches, packing, ranks) changes neither value nor gradient.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit import tape as taped
from rlkit.divergences import FAR  # `as`: the others are part of this module, for a plug-in's mypy, too
from rlkit.divergences import kl_k1 as kl_k1
from rlkit.divergences import kl_k2 as kl_k2
from rlkit.divergences import kl_k3 as kl_k3
from rlkit.divergences import kl_unbiased as kl_unbiased
from rlkit.errors import UserError
from rlkit.preference_losses import bradley_terry as bradley_terry
from rlkit.preference_losses import dpo as dpo
from rlkit.preference_losses import hinge as hinge
from rlkit.preference_losses import ipo as ipo
from rlkit.preference_losses import simpo as simpo
from rlkit.shapes import same_shape

Over = Literal["token", "sequence", "constant", "row"]


def reduction(mask: Tensor, over: Over, length: int = 1) -> Tensor:
    """The weight of each element of a minibatch; masked elements get 0.

    mask: [B, T], or [N]: steps without rows; in groups [P, G, T] the rows are the P·G attempts, of `row` the P groups.

    token      1 / Σ mask                  every step counts the same        (DAPO, arXiv:2503.14476; PPO)
    sequence   1 / (rows · steps of row)   every row counts the same         (GRPO, arXiv:2402.03300)
    constant   1 / (B · length)            a fixed divisor: the token limit  (Dr. GRPO, arXiv:2503.20783)
    row        1 / rows, shape [B]         for losses of one number a row    (DPO, arXiv:2305.18290)
    """
    m = mask.float()
    if over == "token":
        return m / m.sum().clamp(min=1)
    if over == "constant":
        return m / (mask.shape[: max(1, mask.dim() - 1)].numel() * length)
    if mask.dim() < 2 and over in ("row", "sequence"):
        raise UserError(f'over="{over}" weighs rows, and here are single steps: let the buffer have whole_rows=True')
    if over == "row":
        acted = m.flatten(1).amax(1)
        return acted / acted.sum().clamp(min=1)
    if over == "sequence":
        return m / (m.amax(-1).sum().clamp(min=1) * m.sum(-1, keepdim=True).clamp(min=1))
    raise ValueError(f"over={over!r} is not a reduction: give token, sequence, constant or row")


def plus(each: Tensor, other: Tensor, scale: float | Tensor) -> Tensor:
    """each + scale·other: another term of a loss. A scale that is learned is a tensor of one number, or of one each.

    With the number 0 it is `each`, and the gradient of `other` is spared.
    """
    same_shape(each=each, other=other)
    if isinstance(scale, Tensor):
        scale = scale.reshape(()) if scale.numel() == 1 else scale
        same_shape(each=each, scale=scale if scale.dim() else each)
        return each + scale * other
    if not scale:
        return each
    tape = taped.holding(each) if taped.holding(other) else None
    if tape is None:
        return each + scale * other
    both = torch.add(each.detach(), other.detach(), alpha=scale)

    def back(g: Tensor) -> None:
        taped.add_gradient(other, scale * g)  # first: what is added to one of them must not change g
        taped.add_gradient(each, g)

    tape.note((both,), back)
    return both


def weighted(each: Tensor, weight: Tensor) -> Tensor:
    """Σ weight·each: the loss of a minibatch, where `weight` is its batch["weight"]."""
    same_shape(each=each, weight=weight)
    tape = None if weight.requires_grad else taped.holding(each)
    if tape is None:
        return (each * weight).sum()
    loss = (each.detach() * weight).sum()
    tape.note((loss,), lambda g: taped.add_gradient(each, g * weight.to(each.dtype)), reads=(weight,))
    return loss


def truncated_importance(log_prob: Tensor, sampler_log_prob: Tensor, cap: float) -> Tensor:
    """min(π_b / μ, cap): the weight of steps that were sampled from μ but are credited to the policy π_b.

    Truncated importance sampling (Ionides 2008, doi:10.1198/106186008X320456; for engines that sample in another
    precision: Yao et al. 2025, fengyao.notion.site/off-policy-rl). 1 where both agree; cap = ∞ is the exact weight.
    """
    same_shape(log_prob=log_prob, sampler_log_prob=sampler_log_prob)
    return (log_prob - sampler_log_prob).exp().clamp(max=cap)


def policy_gradient(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """−A·log π(a|s), whose gradient is the score-function estimator (Williams 1992, doi:10.1007/BF00992696)."""
    same_shape(log_prob=log_prob, advantage=advantage)
    tape = None if advantage.requires_grad else taped.holding(log_prob)
    if tape is None:
        return -advantage * log_prob
    loss = -advantage
    each = loss * log_prob.detach()
    tape.note((each,), lambda g: taped.add_gradient(log_prob, g * loss))
    return each


def log_ratio(log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """log ρ = log π_θ − log π_b, of each step."""
    same_shape(log_prob=log_prob, old_log_prob=old_log_prob)
    tape = None if old_log_prob.requires_grad else taped.holding(log_prob)
    if tape is None:
        return log_prob - old_log_prob
    ratio = log_prob.detach() - old_log_prob
    tape.note((ratio,), lambda g: taped.add_gradient(log_prob, g))
    return ratio


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """−min(ρ·A, clip(ρ, 1 − low, 1 + high)·A) with ρ = exp(log π_θ − log π_b).

    PPO, Schulman et al. 2017, arXiv:1707.06347, eq. 7; low ≠ high is DAPO's clip-higher (arXiv:2503.14476). It takes
    the log-ratio, so a ratio per token or per sequence goes through the same function. At ρ = 1 the value is −A and the
    gradient −A·∇log π; with infinite bounds it is plain importance sampling. The derivative by log ρ is −ρ·A where that
    is the larger one, else 0.
    """
    same_shape(log_ratio=log_ratio, advantage=advantage)
    tape = None if advantage.requires_grad else taped.holding(log_ratio)
    x, loss = log_ratio if tape is None else log_ratio.detach(), -advantage
    near = x.clamp(-FAR, FAR)  # infinity times 0 is not a number
    ratio = near.exp()
    free, bound = ratio * loss, ratio.clamp(1 - low, 1 + high) * loss
    each = torch.maximum(free, bound)
    if tape is not None:
        slope = free * ((free >= bound) & (near == x))
        tape.note((each,), lambda g: taped.add_gradient(log_ratio, g * slope))
    return each


def clipped(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """True where `clipped_surrogate` has no gradient: ρ left the interval in the direction of its advantage."""
    same_shape(log_ratio=log_ratio, advantage=advantage)
    ratio = log_ratio.exp()
    return torch.where(advantage > 0, ratio > 1 + high, (ratio < 1 - low) & (advantage < 0))


def dual_clipped(each: Tensor, advantage: Tensor, bound: float) -> Tensor:
    """min(each, c·|A|) where A < 0: limits the loss of steps with A < 0 whose probability grew.

    Dual-clip PPO, Ye et al. 2019, arXiv:1912.09729, with c > 1 + high; c = ∞ changes nothing.
    """
    same_shape(each=each, advantage=advantage)
    return torch.where(advantage < 0, torch.minimum(each, -bound * advantage), each)


def clipped_weight(log_ratio: Tensor, log_prob: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """−sg(clip(ρ, 1 − low, 1 + high))·A·log π: the clipped ratio is a weight, so every step keeps a gradient.

    CISPO, MiniMax-M1 2025, arXiv:2506.13585, eq. 4; sg stops the gradient.
    """
    same_shape(log_ratio=log_ratio, log_prob=log_prob, advantage=advantage)
    ratio = log_ratio.detach().clamp(-FAR, FAR).exp()
    return -ratio.clamp(1 - low, 1 + high) * advantage * log_prob


def soft_gated(log_ratio: Tensor, advantage: Tensor, positive: float, negative: float) -> Tensor:
    """−A·(4/τ)·σ(τ·(ρ − 1)) with τ = positive where A > 0, else negative: a smooth gate instead of the clip.

    SAPO, Gao et al. 2025, arXiv:2511.20347. At ρ = 1 the gradient is −A·∇log π; far from 1 it vanishes.
    """
    same_shape(log_ratio=log_ratio, advantage=advantage)
    tau = torch.where(advantage > 0, positive, negative).to(log_ratio.dtype)
    return -advantage * 4 / tau * torch.sigmoid(tau * (log_ratio.clamp(-FAR, FAR).exp() - 1))


def row_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the steps of each row where mask is True, at every step. x, mask: [B, T] → [B, T]."""
    same_shape(x=x, mask=mask)
    return row_sum(x, mask) / mask.sum(-1, keepdim=True).clamp(min=1)


def row_sum(x: Tensor, mask: Tensor) -> Tensor:
    """The sum over the steps of each row where mask is True, at every step. x, mask: [B, T] → [B, T]."""
    same_shape(x=x, mask=mask)
    return (x * mask).sum(-1, keepdim=True).expand_as(x)


def geometric_surrogate(log_ratio: Tensor, advantage: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """−A·(Π_t ρ̃_t)^(1/T), with log ρ̃_t = min(log ρ_t, high) where A > 0, max(log ρ_t, −low) where A < 0. [B, T].

    GMPO, Zhao et al. 2025, arXiv:2507.20673: the geometric mean over a row's steps, clipped in log space step by step.
    """
    same_shape(log_ratio=log_ratio, advantage=advantage, mask=mask)
    near = torch.where(advantage > 0, log_ratio.clamp(max=high), log_ratio.clamp(min=-low))
    return -advantage * row_mean(near, mask).clamp(-FAR, FAR).exp()


def squared_error(value: Tensor, target: Tensor) -> Tensor:
    """½(v − y)²: a step of plain SGD at rate α on a table entry is v += α·(y − v)."""
    same_shape(value=value, target=target)
    tape = None if target.requires_grad else taped.holding(value)
    if tape is None:
        return 0.5 * F.mse_loss(value, target, reduction="none")
    gap = value.detach() - target  # the derivative
    each = 0.5 * gap.square()
    tape.note((each,), lambda g: taped.add_gradient(value, g * gap))
    return each


def huber(value: Tensor, target: Tensor) -> Tensor:
    """½δ² for |δ| ≤ 1, |δ| − ½ beyond (Huber 1964; DQN's error clipping, Mnih et al. 2015)."""
    same_shape(value=value, target=target)
    tape = None if target.requires_grad else taped.holding(value)
    if tape is None:
        return F.huber_loss(value, target, reduction="none")
    gap = value.detach() - target
    near = gap.clamp(-1, 1)  # the derivative
    each = near * (gap - 0.5 * near)
    tape.note((each,), lambda g: taped.add_gradient(value, g * near))
    return each


def clipped_value(value: Tensor, old_value: Tensor, target: Tensor, clip: float) -> Tensor:
    """max of ½(v − y)² and ½(v_old + clip(v − v_old, ±c) − y)²: v gains nothing by moving further than c from v_old.

    From the PPO of OpenAI Baselines; see Andrychowicz et al. 2020, arXiv:2006.05990. c = ∞ is `squared_error`.
    """
    same_shape(value=value, old_value=old_value, target=target)
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(squared_error(value, target), squared_error(near, target))
