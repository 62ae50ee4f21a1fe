"""TRL's losses in its own terms; sources in systems.py."""

import torch
import torch.nn.functional as F
from torch import Tensor

from support.systems import Batch, k3, sides


def advantages(scores: Tensor, scale_rewards: str = "group") -> Tensor:
    """[P, G] → [B]: unbiased standard deviations and 1e-4, of the group, of the whole batch, or none."""
    centered = scores - scores.mean(1, keepdim=True)
    if scale_rewards == "group":
        centered = centered / (scores.std(1, keepdim=True) + 1e-4)
    elif scale_rewards == "batch":
        centered = centered / (scores.flatten().std() + 1e-4)
    return centered.flatten()


def grpo(
    batch: Batch,
    loss_type: str = "dapo",
    importance_sampling_level: str = "token",
    scale_rewards: str = "group",
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
    beta: float = 0.0,
    use_bias_correction_kl: bool = True,
    max_completion_length: int = 256,
    sapo_temperature_pos: float = 1.0,
    sapo_temperature_neg: float = 1.05,
    entropy_coef: float = 0.0,
) -> Tensor:
    """GRPOTrainer._compute_loss of one accumulation step that holds one whole generation batch."""
    high = epsilon if epsilon_high is None else epsilon_high
    advantage = advantages(batch.scores, scale_rewards).unsqueeze(1)
    log_weight = batch.new - batch.old
    if importance_sampling_level == "sequence":
        log_weight = (log_weight * batch.mask).sum(1, keepdim=True) / batch.mask.sum(1, keepdim=True).clamp(min=1)
    weight = torch.exp(log_weight)
    if loss_type == "cispo":
        each = -weight.clamp(max=high).detach() * advantage * batch.new
    elif loss_type == "sapo":
        temperature = torch.where(advantage > 0, sapo_temperature_pos, sapo_temperature_neg)
        each = -advantage * torch.sigmoid(temperature * (weight - 1)) * 4 / temperature
    else:
        capped = weight if delta is None else weight.clamp(max=delta)
        each = -torch.min(capped * advantage, weight.clamp(1 - epsilon, 1 + high) * advantage)
    if beta:
        each = each + beta * k3(batch) * (weight if use_bias_correction_kl else 1.0)
    loss = reduce(each.expand_as(batch.mask), batch.mask, loss_type, max_completion_length)
    if entropy_coef:
        assert batch.entropy is not None
        loss = loss - entropy_coef * (batch.entropy * batch.mask).sum() / batch.mask.sum().clamp(min=1)
    return loss


def reduce(each: Tensor, mask: Tensor, loss_type: str, max_completion_length: int) -> Tensor:
    if loss_type in ("grpo", "sapo"):  # a row without tokens counts as a row
        return ((each * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
    if loss_type == "dr_grpo":
        return (each * mask).sum() / (len(each) * max_completion_length)
    return (each * mask).sum() / mask.sum().clamp(min=1)  # bnpo: of this micro-batch; dapo, cispo: of all of them


def rloo_advantages(batch: Batch, beta: float = 0.05, normalize_advantages: bool = False) -> Tensor:
    """The penalty is one number a sequence, Σ_t log π_b − log π_ref, taken from the score before the baseline."""
    kl = ((batch.old - batch.ref) * batch.mask).sum(1).view_as(batch.scores)
    reward = batch.scores - beta * kl
    advantage = reward - (reward.sum(1, keepdim=True) - reward) / (reward.shape[1] - 1)
    if normalize_advantages:
        advantage = (advantage - advantage.mean()) / (advantage.flatten().std() + 1e-4)
    return advantage.flatten()


def rloo(batch: Batch, beta: float = 0.05, epsilon: float = 0.2, normalize_advantages: bool = False) -> Tensor:
    """RLOOTrainer._compute_loss: one ratio a sequence, the product of its tokens' ratios."""
    advantage = rloo_advantages(batch, beta, normalize_advantages)
    ratio = torch.exp(((batch.new - batch.old) * batch.mask).sum(1))
    return -torch.min(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon) * advantage).mean()


def gmpo(batch: Batch, epsilon: float = 0.4, epsilon_high: float | None = None, beta: float = 0.0) -> Tensor:
    """experimental.gmpo: log-ratios are clipped on the side of the advantage, then averaged and exponentiated."""
    advantage = advantages(batch.scores)
    log_ratio, side = batch.new - batch.old, advantage.unsqueeze(1) > 0
    near = log_ratio.clamp(-epsilon, epsilon if epsilon_high is None else epsilon_high)
    log_ratio = torch.where(side, torch.minimum(log_ratio, near), torch.maximum(log_ratio, near))
    length = batch.mask.sum(1).clamp(min=1)
    each = -torch.exp((log_ratio * batch.mask).sum(1) / length) * advantage
    return (each + beta * (k3(batch) * batch.mask).sum(1) / length).mean()


def dpo(batch: Batch, loss_type: str = "sigmoid", beta: float = 0.1) -> Tensor:
    """DPOTrainer: sums over tokens, but for ipo means."""
    chosen, rejected, ref_chosen, ref_rejected = sides(batch, mean=loss_type == "ipo")
    delta = (chosen - ref_chosen) - (rejected - ref_rejected)
    if loss_type == "ipo":
        return ((delta - 1 / (2 * beta)) ** 2).mean()
    return (-F.logsigmoid(beta * delta) if loss_type == "sigmoid" else torch.relu(1 - beta * delta)).mean()


def simpo(batch: Batch, beta: float = 0.1, simpo_gamma: float = 0.5) -> Tensor:
    """experimental.cpo with loss_type="simpo" and cpo_alpha=0."""
    chosen, rejected, _, _ = sides(batch, mean=True)
    return -F.logsigmoid(beta * (chosen - rejected - simpo_gamma / beta)).mean()
