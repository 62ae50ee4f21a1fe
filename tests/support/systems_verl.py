"""verl's losses in its own terms; sources in systems.py."""

import torch
from torch import Tensor

from support.systems import Batch, last_token


def whiten(values: Tensor, mask: Tensor) -> Tensor:
    count = mask.sum()
    mean = (values * mask).sum() / (count + 1e-8)
    variance = ((values - mean).square() * mask).sum() / (count + 1e-8) * count / (count - 1)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


def advantages(batch: Batch, adv_estimator: str = "grpo", norm_adv_by_std_in_grpo: bool = True) -> Tensor:
    """[B, T]: `grpo`, `rloo`, `reinforce_plus_plus_baseline`, and `reinforce_plus_plus` at γ = 1 without KL."""
    scores, size = batch.scores, batch.scores.shape[1]
    centered = scores - scores.mean(1, keepdim=True)
    if adv_estimator == "grpo":
        scaled = centered / (scores.std(1, keepdim=True) + 1e-6) if norm_adv_by_std_in_grpo else centered
        return scaled.flatten().unsqueeze(1) * batch.mask
    if adv_estimator == "rloo":
        return (centered * size / (size - 1)).flatten().unsqueeze(1) * batch.mask
    raw = centered if adv_estimator == "reinforce_plus_plus_baseline" else scores
    return whiten(raw.flatten().unsqueeze(1) * batch.mask, batch.mask)


def reinforce_plus_plus(batch: Batch, kl_coef: float, gamma: float = 1.0) -> Tensor:
    """[B, T]: the advantage with the k1 penalty in the reward of each token; the score comes with the last one."""
    reward = -kl_coef * (batch.old - batch.ref) * batch.mask
    reward[torch.arange(len(reward)), last_token(batch.mask)] += batch.scores.flatten() * batch.mask.amax(1)
    running, total = torch.zeros_like(reward[:, 0]), torch.zeros_like(reward)
    for t in reversed(range(reward.shape[1])):
        stepped, acted = reward[:, t] + gamma * running, batch.mask[:, t]
        total[:, t] = stepped * acted
        running = stepped * acted + running * (1 - acted)
    return whiten(total, batch.mask)


def aggregate(each: Tensor, mask: Tensor, loss_agg_mode: str, loss_scale_factor: int | None = None) -> Tensor:
    """agg_loss of a whole mini-batch; a row without tokens is not a row."""
    length = mask.sum(1)
    rows = (length > 0).sum()
    if loss_agg_mode == "token-mean":
        return (each * mask).sum() / length.sum()
    if loss_agg_mode == "seq-mean-token-mean":
        return ((each * mask).sum(1) / (length + 1e-8)).sum() / rows
    total = (each * mask).sum() / rows
    if loss_agg_mode == "seq-mean-token-sum":
        return total
    return total / (loss_scale_factor or mask.shape[1])  # seq-mean-token-sum-norm: without a factor the padded length


def kl(batch: Batch, kl_penalty: str) -> Tensor:
    """kl_penalty(): k1, abs, k2, k3 (its two clamps stop the gradient, too); a + takes the gradient of k2."""
    gap = batch.new - batch.ref
    exponent = (-gap).clamp(-20, 20)
    k3 = (exponent.exp() - exponent - 1).clamp(-10, 10)
    value = {"k1": gap, "abs": gap.abs(), "k2": 0.5 * gap**2, "k3": k3}[kl_penalty.rstrip("+")]
    return value if kl_penalty[-1] != "+" else (0.5 * gap**2) + (value - 0.5 * gap**2).detach()


def per_token(batch: Batch, advantage: Tensor, loss_mode: str, low: float, high: float, clip_ratio_c: float) -> Tensor:
    """compute_policy_loss_*: the loss of each token, or of each row for geo_mean."""
    log_ratio = (batch.new - batch.old).clamp(-20, 20)
    ratio = log_ratio.exp()
    if loss_mode == "cispo":
        return -ratio.clamp(1 - low, 1 + high).detach() * advantage * batch.new
    if loss_mode == "sapo":
        tau = torch.where(advantage > 0, 1.0, 1.05 * torch.ones_like(advantage))
        return -advantage * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    if loss_mode == "gspo":
        mean = ((batch.new - batch.old) * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)
        ratio = (batch.new - batch.new.detach() + mean.detach().unsqueeze(1)).clamp(max=10).exp()
    worse = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - low, 1 + high))
    if loss_mode == "gspo":
        return worse
    return torch.where(advantage < 0, torch.minimum(worse, -advantage * clip_ratio_c), worse)


def geo_mean(batch: Batch, advantage: Tensor, low: float, high: float) -> Tensor:
    log_ratio, sign = batch.new - batch.old, advantage.sign()
    near = sign * torch.minimum(sign * log_ratio, sign * log_ratio.clamp(-low, high))
    length = batch.mask.sum(1) + 1e-8
    ratio = torch.exp((near * batch.mask).sum(1) / length)
    return (-(advantage * batch.mask).sum(1) / length * ratio).mean()


def policy_loss(
    batch: Batch,
    loss_mode: str = "vanilla",
    loss_agg_mode: str = "token-mean",
    adv_estimator: str = "grpo",
    norm_adv_by_std_in_grpo: bool = True,
    clip_ratio_low: float = 0.2,
    clip_ratio_high: float = 0.2,
    clip_ratio_c: float = 3.0,
    kl_loss_coef: float = 0.0,
    kl_loss_type: str = "k3",
    loss_scale_factor: int | None = None,
    advantage: Tensor | None = None,
) -> Tensor:
    """The policy loss by its registered name, plus the KL loss, which is always aggregated by loss_agg_mode."""
    if advantage is None:
        advantage = advantages(batch, adv_estimator, norm_adv_by_std_in_grpo)
    if loss_mode == "geo_mean":
        loss = geo_mean(batch, advantage, clip_ratio_low, clip_ratio_high)
    else:
        each = per_token(batch, advantage, loss_mode, clip_ratio_low, clip_ratio_high, clip_ratio_c)
        mode = "seq-mean-token-mean" if loss_mode in ("gspo", "sapo") else loss_agg_mode
        loss = aggregate(each, batch.mask, mode, loss_scale_factor)
    penalty = aggregate(kl(batch, kl_loss_type), batch.mask, loss_agg_mode, loss_scale_factor)
    return loss + kl_loss_coef * penalty
