"""Credit: pure functions from rewards and values to returns and advantages.

Tensor arguments have one and the same shape, [..., T] with time last; step t holds r_t, V(s_t), V(s_{t+1}).
`terminated` cuts the bootstrap, `done` cuts the trace. Functions of scores [P, G] are in group_scores.py.

With a `mask` time runs over the acted steps alone, however many others lie between two of them (see gaps.py): s_{t+1}
is the next state in which the policy acts, and a reward in a gap belongs to the acted step before it. Without one, and
where there is no gap, every step counts.
"""

import torch
from torch import Tensor

from rlkit import gaps

# `as`: they are part of this module, for a plug-in's mypy, too
from rlkit.group_scores import batch_relative as batch_relative
from rlkit.group_scores import best_and_worst as best_and_worst
from rlkit.group_scores import beta_relative as beta_relative
from rlkit.group_scores import differ as differ
from rlkit.group_scores import group_centered as group_centered
from rlkit.group_scores import group_relative as group_relative
from rlkit.group_scores import leave_one_out as leave_one_out
from rlkit.shapes import same_shape


def backward_scan(delta: Tensor, decay: Tensor) -> Tensor:
    """Solve x_t = δ_t + c_t·x_{t+1} with x_T = 0, for all t at once.

    Doubling: after k rounds every x_t holds the terms t .. t+2^k−1, so log₂T vector operations replace T small ones
    (Hillis & Steele 1986, doi:10.1145/7902.7903). delta, decay: [..., T].
    """
    same_shape(delta=delta, decay=decay)
    x, c, step, length = delta, decay, 1, delta.shape[-1]
    while step < length:
        tail = torch.nn.functional.pad(x[..., step:], (0, step))
        c_tail = torch.nn.functional.pad(c[..., step:], (0, step))
        x, c, step = x + c * tail, c * c_tail, 2 * step
    return x


def reward_to_go(reward: Tensor, done: Tensor, gamma: float, mask: Tensor | None = None) -> Tensor:
    """G_t = r_t + γ·(1 − done_t)·G_{t+1}: the discounted sum of rewards from t to the end of the episode.

    Sutton & Barto (2018), eq. 3.9. reward, done, mask: [..., T].
    """
    same_shape(reward=reward, done=done, mask=done if mask is None else mask)
    if mask is not None and gaps.gapped(mask, done):
        acted = gaps.Acted(mask, done)
        return acted.back(reward_to_go(acted.total(reward), acted.any(done), gamma))
    return backward_scan(reward, gamma * done.logical_not().to(reward.dtype))


def total_return(reward: Tensor, mask: Tensor, gamma: float, done: Tensor | None = None) -> Tensor:
    """G_0 = Σ_t γ^t·r_t of each episode, the same at every step of it. reward, mask, done: [..., T].

    An episode begins with the first acted step after the one before and ends where it is `done`; without that, each row
    is one, which ends with the last acted step. t counts acted steps only. A reward in a gap, also before the end,
    counts as that of the acted step before it.
    """
    same_shape(reward=reward, mask=mask, done=mask if done is None else done)
    if done is None:
        done = mask & (mask.cumsum(-1) == mask.sum(-1, keepdim=True))
    acted = gaps.Acted(mask, done)
    over = acted.any(done)
    to_go = reward_to_go(acted.total(reward), over, gamma)
    t = torch.arange(reward.shape[-1], device=reward.device).expand(reward.shape)
    first = torch.where(over.roll(1, -1), t, 0).cummax(-1).values  # of its episode, the start of each step
    return to_go.gather(-1, first).gather(-1, acted.place)


def td_target(reward: Tensor, next_value: Tensor, terminated: Tensor, gamma: float | Tensor) -> Tensor:
    """y_t = r_t + γ·(1 − terminated_t)·V(s_{t+1}). A truncated step still bootstraps. gamma: a number, or one per step.

    Sutton & Barto (2018), eq. 6.2; with max_a Q(s', a) as next_value it is Q-learning's target (Watkins 1989).
    """
    with_gamma = gamma if isinstance(gamma, Tensor) else reward
    same_shape(reward=reward, next_value=next_value, terminated=terminated, gamma=with_gamma)
    return reward + (gamma * next_value).masked_fill(terminated, 0.0)


def n_step(
    reward: Tensor, done: Tensor, gamma: float, n: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The discounted sum of the next n rewards, and where the steps end: (total, last, discount), all [..., T].

    total_t = Σ_{k<m} γ^k·r_{t+k},   last_t = t + m − 1,   discount_t = γ^m,
    with m = min(n, steps to the end of the episode, steps to the end of the window), both ends included. The n-step
    target is total + discount·(1 − terminated[last])·V(next_observation[last]) (Sutton & Barto 2018, eq. 7.1).
    """
    same_shape(reward=reward, done=done, mask=done if mask is None else mask)
    t = torch.arange(reward.shape[-1], device=reward.device).expand(reward.shape)
    if mask is not None and gaps.gapped(mask, done):
        acted = gaps.Acted(mask, done)
        over = acted.any(done) | (t == acted.there.sum(-1, keepdim=True) - 1)
        total, last, discount = n_step(acted.total(reward), over, gamma, n)
        return acted.back(total), acted.back(acted.order.gather(-1, last)), acted.back(discount)
    end = torch.where(done, t, reward.shape[-1] - 1).flip(-1).cummin(-1).values.flip(-1)
    last = torch.minimum(t + n - 1, end)
    total = torch.zeros_like(reward)
    for k in range(min(n, reward.shape[-1])):
        total = total + gamma**k * torch.where(t + k <= last, reward.roll(-k, -1), 0)
    steps = last - t + 1
    return total, last, gamma ** (steps.to(reward.dtype) if reward.is_floating_point() else steps)


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    lam: float,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation: (advantage, return), both [..., T].

    δ_t = r_t + γ·(1 − terminated_t)·V(s_{t+1}) − V(s_t)
    A_t = δ_t + γλ·(1 − done_t)·A_{t+1},   R_t = A_t + V(s_t)

    Schulman et al. 2015, arXiv:1506.02438. λ = 0 is the one-step TD error, λ = 1 the Monte-Carlo advantage.
    next_value is that of the true next observation, so a truncated step bootstraps from where the episode was cut.
    """
    given = done if mask is None else mask
    same_shape(reward=reward, value=value, next_value=next_value, terminated=terminated, done=done, mask=given)
    if mask is not None and gaps.gapped(mask, done):
        acted = gaps.Acted(mask, done)
        values, ends = (acted.at(value), acted.at(next_value)), (acted.any(terminated), acted.any(done))
        advantage, target = gae(acted.total(reward), *values, *ends, gamma, lam)
        return acted.back(advantage), acted.back(target)
    delta = td_target(reward, next_value, terminated, gamma) - value
    advantage = backward_scan(delta, gamma * lam * done.logical_not().to(delta.dtype))
    return advantage, advantage + value


def standardize(x: Tensor, mask: Tensor, eps: float = 1e-8, correction: int = 1) -> Tensor:
    """(x − mean) / (std + ε) over the elements where mask is True; 0 elsewhere. A single element becomes 0.

    The variance is divided by their number minus `correction`: 1 unbiased, 0 biased.
    """
    same_shape(x=x, mask=mask)
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    count = mask.sum().clamp(min=1)
    # In float64: in float32 rounding makes equal elements differ from their mean, and the division enlarges that.
    mean = (torch.where(mask, x, 0).sum(dtype=torch.float64) / count).to(x.dtype)
    centered = torch.where(mask, x - mean, 0)
    std = (centered.square().sum() / (count - correction).clamp(min=1)).sqrt()
    scale = std + eps
    return centered / scale.clamp(min=torch.finfo(scale.dtype).tiny)


def overlong(length: Tensor, limit: int, buffer: int) -> Tensor:
    """0 up to limit − buffer steps, then rising linearly to 1 at the limit: DAPO's soft punishment, negated.

    Yu et al. 2025, arXiv:2503.14476, eq. 13. length: any shape.
    """
    return ((length - (limit - buffer)) / buffer).clamp(0, 1)
