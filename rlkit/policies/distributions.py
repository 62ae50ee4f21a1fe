"""Log-probabilities and entropies of actions, with their derivatives written out where that is faster."""

import math
from contextlib import nullcontext

import torch
from torch import Tensor

from rlkit.tape import add_gradient, holding, hooked, recording


def pick(values: Tensor, action: Tensor) -> Tensor:
    """values[..., a]: [..., A] and [...] → [...]."""
    tape, index = holding(values), action.unsqueeze(-1)
    if tape is None:
        return values.gather(-1, index).squeeze(-1)
    picked = values.detach().gather(-1, index).squeeze(-1)
    tape.note(
        (picked,),
        lambda g: add_gradient(values, torch.zeros_like(values).scatter_(-1, index, g.unsqueeze(-1))),
        reads=(action,),
    )
    return picked


def categorical(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """log p(a) and H = −Σ_b p(b)·log p(b) with log p = log_softmax(logits). [..., A], [...] → [...], [...].

    Logits z that are on a tape, by hand: ∂log p(a)/∂z_b = [a = b] − p_b and ∂H/∂z_b = −p_b·(log p_b + H).
    """
    tape = recording() if logits.is_leaf else None  # through what autograd computed, it goes back by itself
    with torch.no_grad() if tape else nullcontext():
        log_p = logits.log_softmax(-1)
        p = log_p.exp()
        log_prob, entropy = pick(log_p, action), -(p * log_p).sum(-1)
    if tape is None:
        return log_prob, entropy
    own = entropy.clone()  # a metric may be computed in place of what is returned

    def back(by_log_prob: Tensor | None, by_entropy: Tensor | None) -> None:
        found = torch.zeros_like(p)
        if by_log_prob is not None:
            found = p * -by_log_prob.unsqueeze(-1)
            found.scatter_add_(-1, action.unsqueeze(-1), by_log_prob.unsqueeze(-1))
        if by_entropy is not None:
            found -= by_entropy.unsqueeze(-1) * p * (log_p + own.unsqueeze(-1))
        add_gradient(logits, found)

    tape.note((log_prob, entropy), back, reads=(action,))
    return log_prob, entropy


def categoricals(logits: Tensor, action: Tensor, choices: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The same of k independent choices with n_i values each: the sums of log p_i(a_i) and of H_i.

    logits: those of all choices side by side, [..., Σ n_i]; action: [..., k] → [...], [...].
    """
    found = [categorical(z, a) for z, a in zip(torch.split(logits, [*choices], -1), action.unbind(-1), strict=True)]
    return torch.stack([x for x, _ in found]).sum(0), torch.stack([x for _, x in found]).sum(0)


def gaussian(mean: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-density and entropy of a diagonal Gaussian: −½((a − μ)/σ)² − log σ − ½ log 2π, summed over dimensions.

    mean, action: [..., d], log_std: [d] → [...], [...]. The arithmetic is that of `torch.distributions.Normal`.
    A mean that is on a tape, by hand: ∂/∂μ = (a − μ)/σ² and ∂/∂log σ = ((a − μ)/σ)² − 1; of the entropy 0 and 1.
    """
    own = log_std.is_leaf and log_std.shape == mean.shape[-1:] and not (action.requires_grad or hooked(log_std))
    tape = recording() if mean.is_leaf and own else None
    with torch.no_grad() if tape else nullcontext():
        std = log_std.exp().expand_as(mean)
        log_scale, gap = std.log(), action - mean
        log_prob = (-(gap**2) / (2 * std**2) - log_scale - math.log(math.sqrt(2 * math.pi))).sum(-1)
        entropy = (0.5 + 0.5 * math.log(2 * math.pi) + log_scale).sum(-1)
    if tape is None:
        return log_prob, entropy

    def back(by_log_prob: Tensor | None, by_entropy: Tensor | None) -> None:
        if by_log_prob is not None:
            each = by_log_prob.unsqueeze(-1)
            by_mean = each * gap / std**2
            add_gradient(mean, by_mean)
            if log_std.requires_grad:
                add_gradient(log_std, (by_mean * gap - each).flatten(0, -2).sum(0))
        if by_entropy is not None and log_std.requires_grad:
            add_gradient(log_std, by_entropy.sum().expand_as(log_std).clone())

    tape.note((log_prob, entropy), back)
    return log_prob, entropy


def squashed(out: Tensor, noise: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """a = tanh(u) with u = μ + σ·ε, and its log-density Σ_i [−½ε² − log σ − ½ log 2π − log(1 − tanh² u)].

    Haarnoja et al. 2018, arXiv:1812.05905, appendix C; log(1 − tanh² u) = 2·(log 2 − u − softplus(−2u)) stays finite.
    out: μ and log σ side by side [..., 2d], log σ clipped to [low, high]; noise: ε [..., d] → [..., d], [...].
    Of an `out` that is on a tape, by hand: with ∂a/∂u = 1 − a² and ∂log π/∂u = 2a, ∂u/∂μ = 1 and ∂u/∂log σ = σ·ε;
    besides ∂log π/∂log σ = −1. ε is a constant.
    """
    tape = recording() if out.is_leaf else None
    with torch.no_grad() if tape else nullcontext():
        mean, raw = out.chunk(2, -1)
        log_std, within = raw.clamp(low, high), (raw >= low) & (raw <= high)
        spread = log_std.exp() * noise
        u = mean + spread
        action = u.tanh()
        slope = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))  # log(1 − a²)
        log_prob = (-0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - slope).sum(-1)
    if tape is None:
        return action, log_prob

    def back(by_action: Tensor | None, by_log_prob: Tensor | None) -> None:
        by_u = torch.zeros_like(u) if by_action is None else by_action * slope.exp()
        by_log_std = torch.zeros_like(u)
        if by_log_prob is not None:
            each = by_log_prob.unsqueeze(-1)
            by_u, by_log_std = by_u + 2 * action.detach() * each, by_log_std - each
        by_log_std = (by_log_std + by_u * spread) * within
        add_gradient(out, torch.cat([by_u, by_log_std], -1))

    tape.note((action, log_prob), back, reads=(action,))
    return action, log_prob
