"""What each step was worth: pure functions from rewards and values to returns and advantages.

Shapes are [..., T] with time last unless said otherwise; step t holds r_t, V(s_t), V(s_{t+1}). `terminated` cuts the
bootstrap, `done` cuts the trace. The score functions take [P, G]: P starts, G attempts from each.
"""

import torch
from torch import Tensor


def backward_scan(delta: Tensor, decay: Tensor) -> Tensor:
    """Solve x_t = δ_t + c_t·x_{t+1} with x_T = 0, for all t at once.

    Doubling: after k rounds every x_t holds the terms t .. t+2^k−1, so log₂T vector operations replace T small ones
    (Hillis & Steele 1986, doi:10.1145/7902.7903). delta, decay: [..., T].
    """
    x, c, step, length = delta, decay, 1, delta.shape[-1]
    while step < length:
        tail = torch.nn.functional.pad(x[..., step:], (0, step))
        c_tail = torch.nn.functional.pad(c[..., step:], (0, step))
        x, c, step = x + c * tail, c * c_tail, 2 * step
    return x


def reward_to_go(reward: Tensor, done: Tensor, gamma: float) -> Tensor:
    """G_t = r_t + γ·(1 − done_t)·G_{t+1}: what was still collected from t on in the same episode.

    Sutton & Barto (2018), eq. 3.9. reward, done: [..., T].
    """
    return backward_scan(reward, gamma * (~done).to(reward.dtype))


def total_return(reward: Tensor, mask: Tensor, gamma: float) -> Tensor:
    """G_0 = Σ_t γ^t·r_t, the same number at every step of the row's one episode. reward, mask: [..., T]."""
    acted = mask.to(reward.dtype)
    age = (acted.cumsum(-1) - 1).clamp(min=0)
    return (gamma**age * reward * acted).sum(-1, keepdim=True).expand_as(reward)


def td_target(reward: Tensor, next_value: Tensor, terminated: Tensor, gamma: float | Tensor) -> Tensor:
    """y_t = r_t + γ·(1 − terminated_t)·V(s_{t+1}). A truncated step still bootstraps. Any one shape.

    Sutton & Barto (2018), eq. 6.2; with max_a Q(s', a) as next_value it is Q-learning's target (Watkins 1989).
    """
    return reward + gamma * next_value * (~terminated).to(reward.dtype)


def n_step(reward: Tensor, done: Tensor, gamma: float, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the next n steps earn and where they lead: (total, last, discount), all [..., T].

    total_t = Σ_{k<m} γ^k·r_{t+k},   last_t = t + m − 1,   discount_t = γ^m,
    with m = min(n, steps to the end of the episode, steps to the end of the window), both ends included. The n-step
    target is total + discount·(1 − terminated[last])·V(next_observation[last]) (Sutton & Barto 2018, eq. 7.1).
    """
    t = torch.arange(reward.shape[-1], device=reward.device).expand(reward.shape)
    end = torch.where(done, t, reward.shape[-1] - 1).flip(-1).cummin(-1).values.flip(-1)
    last = torch.minimum(t + n - 1, end)
    total = torch.zeros_like(reward)
    for k in range(min(n, reward.shape[-1])):
        total = total + gamma**k * torch.where(t + k <= last, reward.roll(-k, -1), 0)
    return total, last, gamma ** (last - t + 1).to(reward.dtype)


def gae(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation: (advantage, return), both [..., T].

    δ_t = r_t + γ·(1 − terminated_t)·V(s_{t+1}) − V(s_t)
    A_t = δ_t + γλ·(1 − done_t)·A_{t+1},   R_t = A_t + V(s_t)

    Schulman et al. 2015, arXiv:1506.02438. λ = 0 is the one-step TD error, λ = 1 the Monte-Carlo advantage.
    next_value is that of the true next observation, so a truncated step bootstraps from where the episode was cut.
    """
    delta = td_target(reward, next_value, terminated, gamma) - value
    advantage = backward_scan(delta, gamma * lam * (~done).to(delta.dtype))
    return advantage, advantage + value


def standardize(x: Tensor, mask: Tensor, eps: float = 1e-8, correction: int = 1) -> Tensor:
    """(x − mean) / (std + ε) over the elements where mask is True; 0 elsewhere. A single element becomes 0.

    The variance is divided by their number minus `correction`: 1 unbiased, 0 biased.
    """
    count = mask.sum().clamp(min=1)
    # In double precision, else rounding makes equal elements differ from their mean and the division blows it up.
    mean = (torch.where(mask, x, 0).sum(dtype=torch.float64) / count).to(x.dtype)
    centred = torch.where(mask, x - mean, 0)
    std = (centred.square().sum() / (count - correction).clamp(min=1)).sqrt()
    return _over(centred, std + eps)


def group_centered(score: Tensor) -> Tensor:
    """A_g = s_g − mean_g(s): the group is the baseline. score: [P, G].

    Dr. GRPO, Liu et al. 2025, arXiv:2503.20783: without the division no question weighs more for being uneven.
    """
    score = score - score[..., :1]  # so that rounding leaves equal scores at exactly 0
    return score - score.mean(-1, keepdim=True)


def _over(centred: Tensor, scale: Tensor) -> Tensor:
    """The quotient, 0 where both are 0."""
    return centred / scale.clamp(min=torch.finfo(scale.dtype).tiny)


def group_relative(score: Tensor, eps: float = 1e-4, correction: int = 1) -> Tensor:
    """A_g = (s_g − mean_g(s)) / (std_g(s) + ε), std with divisor G − correction (1 unbiased, 0 biased). score: [P, G].

    GRPO, Shao et al. 2024, arXiv:2402.03300, eq. 3. A group of equal scores gets 0: it carries no signal.
    """
    return _over(group_centered(score), score.std(-1, correction=correction, keepdim=True) + eps)


def batch_relative(score: Tensor, eps: float = 1e-4, correction: int = 1) -> Tensor:
    """A_g = (s_g − mean_g(s)) / (std(s) + ε): centred by the group, scaled by the std of all scores. score: [P, G].

    Lite PPO, Liu et al. 2025, arXiv:2508.08221: easy and hard starts are scaled alike.
    """
    return _over(group_centered(score), score.std(correction=correction) + eps)


def leave_one_out(score: Tensor) -> Tensor:
    """A_g = s_g − mean of the other G − 1 scores = G/(G − 1)·(s_g − mean_g(s)). score: [P, G], G ≥ 2.

    RLOO, Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740: a baseline that owes nothing to the attempt itself.
    """
    return group_centered(score) * (score.shape[-1] / (score.shape[-1] - 1))


def beta_relative(score: Tensor) -> Tensor:
    """A_g = (s_g − p) / f(p; 1 + a/3, 1 + b/3), p = mean_g(s), f the Beta density. score: [P, G], within [0, 1].

    BNPO, Xiao et al. 2025, arXiv:2506.02864: Beta(a, b) is fitted by its moments to the p of all starts, which makes
    this scale the one of least variance; a = b = 3/2 is GRPO's √(p(1 − p)). Groups of equal scores get 0. The density
    counts as 0.1 at least, else one start with an unlikely p would be the whole update.
    """
    p = score.mean(-1, keepdim=True)
    mean, spread = p.mean(), p.var(correction=0)
    size = (mean * (1 - mean) / spread.clamp(min=1e-6) - 1).clamp(1e-3, 1e3)
    a, b = 1 + size * mean / 3, 1 + size * (1 - mean) / 3
    inner = p.clamp(1e-6, 1 - 1e-6)
    norm = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
    density = (norm + (a - 1) * inner.log() + (b - 1) * (1 - inner).log()).exp()
    flat = score.amax(-1, keepdim=True) == score.amin(-1, keepdim=True)
    return torch.where(flat, 0.0, (score - p) / density.clamp(min=0.1))


def differ(score: Tensor) -> Tensor:
    """Which starts have attempts of different scores: the others carry no signal. [P, G] → [P] bool."""
    return score.amax(-1) > score.amin(-1)


def overlong(length: Tensor, limit: int, buffer: int) -> Tensor:
    """0 up to limit − buffer steps, then rising linearly to 1 at the limit: DAPO's soft punishment. Any one shape.

    Yu et al. 2025, arXiv:2503.14476, eq. 13, with the sign turned.
    """
    return ((length - (limit - buffer)) / buffer).clamp(0, 1)


def best_and_worst(score: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rank each group: (index of the best [P], index of the worst [P], whether they differ [P]). score: [P, G]."""
    best, worst = score.argmax(-1), score.argmin(-1)
    return best, worst, differ(score)
