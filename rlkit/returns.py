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


def td_target(reward: Tensor, next_value: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """y_t = r_t + γ·(1 − terminated_t)·V(s_{t+1}). A truncated step still bootstraps. Any one shape.

    Sutton & Barto (2018), eq. 6.2; with max_a Q(s', a) as next_value it is Q-learning's target (Watkins 1989).
    """
    return reward + gamma * next_value * (~terminated).to(reward.dtype)


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


def standardize(x: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """(x − mean) / (std + ε) over the elements where mask is True; 0 elsewhere. A single element becomes 0."""
    count = mask.sum().clamp(min=1)
    # In double precision, else rounding makes equal elements differ from their mean and the division blows it up.
    mean = (torch.where(mask, x, 0).sum(dtype=torch.float64) / count).to(x.dtype)
    centred = torch.where(mask, x - mean, 0)
    std = (centred.square().sum() / (count - 1).clamp(min=1)).sqrt()
    return centred / (std + eps)


def group_centered(score: Tensor) -> Tensor:
    """A_g = s_g − mean_g(s): the group is the baseline. score: [P, G].

    Dr. GRPO, Liu et al. 2025, arXiv:2503.20783: without the division no question weighs more for being uneven.
    """
    score = score - score[..., :1]  # so that rounding leaves equal scores at exactly 0
    return score - score.mean(-1, keepdim=True)


def group_relative(score: Tensor, eps: float = 1e-4) -> Tensor:
    """A_g = (s_g − mean_g(s)) / (std_g(s) + ε), std unbiased (divisor G − 1). score: [P, G], G ≥ 2.

    GRPO, Shao et al. 2024, arXiv:2402.03300, eq. 3. A group of equal scores gets 0: it carries no signal.
    """
    return group_centered(score) / (score.std(-1, keepdim=True) + eps)


def best_and_worst(score: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rank each group: (index of the best [P], index of the worst [P], whether they differ [P]). score: [P, G]."""
    best, worst = score.argmax(-1), score.argmin(-1)
    return best, worst, score.amax(-1) > score.amin(-1)
