"""Advantages of attempts compared with others from the same start: scores [P, G] of P starts, G attempts."""

import torch
from torch import Tensor

from rlkit.shapes import in_groups


def _real(score: Tensor) -> Tensor:
    """The scores as real numbers."""
    in_groups(score)
    return score if score.is_floating_point() else score.to(torch.get_default_dtype())


def group_centered(score: Tensor) -> Tensor:
    """A_g = s_g − mean_g(s): the group is the baseline. score: [P, G].

    Dr. GRPO, Liu et al. 2025, arXiv:2503.20783: without a division by the std, no question gets more weight.
    """
    score = _real(score)
    score = score - score[..., :1]  # so that rounding leaves equal scores at exactly 0
    return score - score.mean(-1, keepdim=True)


def _over(centered: Tensor, scale: Tensor) -> Tensor:
    """The quotient; 0 where both are 0."""
    return centered / scale.clamp(min=torch.finfo(scale.dtype).tiny)


def _std(score: Tensor, correction: int, dim: int | None = None) -> Tensor:
    """The standard deviation; 0 where there are too few scores to have one."""
    few = (score.numel() if dim is None else score.shape[dim]) <= correction
    return score.std(dim, correction=0 if few else correction, keepdim=dim is not None)


def group_relative(score: Tensor, eps: float = 1e-4, correction: int = 1) -> Tensor:
    """A_g = (s_g − mean_g(s)) / (std_g(s) + ε), std with divisor G − correction (1 unbiased, 0 biased). score: [P, G].

    GRPO, Shao et al. 2024, arXiv:2402.03300, section 4.1.2. A group of equal scores gets 0: it carries no signal.
    """
    score = _real(score)
    return _over(group_centered(score), _std(score, correction, -1) + eps)


def batch_relative(score: Tensor, eps: float = 1e-4, correction: int = 1) -> Tensor:
    """A_g = (s_g − mean_g(s)) / (std(s) + ε): centered by the group, scaled by the std of all scores. score: [P, G].

    Lite PPO, Liu et al. 2025, arXiv:2508.08221: easy and hard starts are scaled alike.
    """
    score = _real(score)
    return _over(group_centered(score), _std(score, correction) + eps)


def leave_one_out(score: Tensor) -> Tensor:
    """A_g = s_g − mean of the other G − 1 scores = G/(G − 1)·(s_g − mean_g(s)). score: [P, G], G ≥ 2.

    RLOO, Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740: the baseline of an attempt does not depend on it.
    """
    in_groups(score)
    if score.shape[-1] < 2:
        raise ValueError(f"leave_one_out compares attempts from one start: there is no other in {list(score.shape)}")
    return group_centered(score) * (score.shape[-1] / (score.shape[-1] - 1))


def beta_relative(score: Tensor) -> Tensor:
    """A_g = (s_g − p) / f(p; 1 + a/3, 1 + b/3), p = mean_g(s), f the Beta density. score: [P, G], within [0, 1].

    BNPO, Xiao et al. 2025, arXiv:2506.02864: Beta(a, b) is fitted by its moments to the p of all starts, which makes
    this scale the one of least variance; a = b = 3/2 is GRPO's √(p(1 − p)). Groups of equal scores get 0. The density
    is at least 0.1; without that bound one start with an unlikely p would dominate the update.
    """
    score = _real(score)
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
    """True for starts whose attempts have different scores; the others carry no signal. [P, G] → [P] bool."""
    in_groups(score)
    return score.amax(-1) > score.amin(-1)


def best_and_worst(score: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rank each group: (index of the best [P], index of the worst [P], whether they differ [P]). score: [P, G]."""
    in_groups(score)
    best, worst = score.argmax(-1), score.argmin(-1)
    return best, worst, differ(score)
