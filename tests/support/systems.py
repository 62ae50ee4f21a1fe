"""What TRL, verl, DI-engine and OpenRLHF compute, each in its own terms: the oracles of test_parity.py.

Written from reading the sources at the commits below; they share no line with rlkit. Whoever wants to know which number
a system would give calls the function with that system's own option names and defaults; the batch is the whole of what
one optimizer step sees. TRL and verl have files of their own, DI-engine and OpenRLHF are here.

    TRL        PyPI 1.16.0, trl/trainer/{grpo,rloo,dpo}_trainer.py, trl/experimental/{gmpo,cpo} (also github f2cd57710)
    verl       github verl-project/verl 1dda039b9, verl/trainer/ppo/core_algos.py, verl/workers/utils/losses.py
    DI-engine  github opendilab/DI-engine d0b21d065, ding/rl_utils/{grpo,rloo}.py
    OpenRLHF   github OpenRLHF/OpenRLHF 3c3be6234, openrlhf/models/{loss,utils}.py, trainer/ppo_utils
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Batch:
    """Log-probabilities of the tokens drawn, [B, T], and the score of each attempt, [P, G] with B = P·G."""

    new: Tensor  # with gradient
    old: Tensor
    ref: Tensor
    mask: Tensor
    scores: Tensor
    entropy: Tensor | None = None

    def __post_init__(self) -> None:
        self.mask = self.mask.to(self.new.dtype)
        self.old, self.ref = self.old.detach(), self.ref.detach()


def last_token(mask: Tensor) -> Tensor:
    return (mask * torch.arange(1, mask.shape[1] + 1)).argmax(1)


def sides(batch: Batch, mean: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probabilities of the chosen and the rejected side of each pair, then the reference's: [pairs] each.

    A pair is a group of two with different scores; mean divides by the number of tokens of a side.
    """
    rows = [(log_prob * batch.mask).sum(1) for log_prob in (batch.new, batch.ref)]
    new, ref = (((row / batch.mask.sum(1)) if mean else row).view_as(batch.scores) for row in rows)
    differ = batch.scores[:, 0] != batch.scores[:, 1]
    best = (batch.scores[:, 1:] > batch.scores[:, :1]).long()
    return tuple(x.gather(1, side)[differ, 0] for x in (new, ref) for side in (best, 1 - best))  # type: ignore[return-value]


# DI-engine


def k3(batch: Batch) -> Tensor:
    return torch.exp(batch.ref - batch.new) - (batch.ref - batch.new) - 1


def di_engine_grpo(batch: Batch, advantage: Tensor, clip_ratio: float = 0.2, beta: float = 0.1) -> Tensor:
    """grpo_policy_error with detached old and reference logits; the advantage [B] is the caller's."""
    ratio, a = torch.exp(batch.new - batch.old), advantage.unsqueeze(1)
    each = -torch.min(ratio * a, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * a) + beta * k3(batch)
    return ((each * batch.mask).sum(1) / batch.mask.sum(1)).mean()  # not a number where a row has no tokens


def di_engine_rloo(batch: Batch, clip_ratio: float = 0.2) -> Tensor:
    """rloo_policy_error: the leave-one-out advantage on the clipped ratio of each token, not of the sequence."""
    reward = batch.scores.T  # [K, B], as it wants it
    advantage = (reward - (reward.sum(0) - reward) / (len(reward) - 1)).T.flatten()
    return di_engine_grpo(batch, advantage, clip_ratio, beta=0.0)


# OpenRLHF


def openrlhf_advantages(
    batch: Batch,
    estimator: str = "group_norm",
    kl_coef: float = 0.0,
    clip_range: tuple[float, float] = (-10.0, 10.0),
    gamma: float = 1.0,
) -> Tensor:
    """[B, T]: baseline, then clip, then the per-token KL penalty, then the return, then batch normalization."""
    scores, size = batch.scores, batch.scores.shape[1]
    centered = scores - scores.mean(1, keepdim=True)
    shaped = scores if estimator == "reinforce" else centered  # reinforce_baseline, dr_grpo
    if estimator == "rloo":
        shaped = scores - (scores.sum(1, keepdim=True) - scores) / (size - 1)
    elif estimator == "group_norm":
        shaped = centered / (scores.std(1, keepdim=True) + 1e-9)
    shaped = shaped.flatten()
    reward = -kl_coef * (batch.old - batch.ref).clamp(-10, 10)
    reward[torch.arange(len(reward)), last_token(batch.mask)] += shaped.clamp(*clip_range)
    reward, running, total = reward * batch.mask, torch.zeros_like(shaped), torch.zeros_like(reward)
    for t in reversed(range(reward.shape[1])):
        running = reward[:, t] + gamma * running
        total[:, t] = running
    if estimator in ("reinforce", "reinforce_baseline"):
        mean = (total * batch.mask).sum() / batch.mask.sum()
        variance = ((total - mean).square() * batch.mask).sum() / batch.mask.sum()
        total = (total - mean) * variance.clamp(min=1e-8).rsqrt()
    return total


def openrlhf_kl(batch: Batch, estimator: str) -> Tensor:
    """compute_approx_kl; the clamp stops the gradient, too."""
    gap = batch.new - batch.ref
    return {"k1": gap, "k2": gap**2 / 2, "k3": torch.exp(-gap) - 1 + gap}[estimator].clamp(-10, 10)


def openrlhf(
    batch: Batch,
    advantage: Tensor,
    policy_loss_type: str = "ppo",
    token_level_loss: bool = True,
    eps_clip_low_high: tuple[float, float] = (0.2, 0.2),
    dual_clip: float | None = None,
    kl_coef: float = 0.0,
    kl_estimator: str = "k3",
) -> Tensor:
    """PolicyLoss + kl_coef · the KL loss (algo.kl.use_loss), which is averaged over tokens in either case."""
    low, high = eps_clip_low_high
    ratio = (batch.new - batch.old).clamp(-20, 20).exp()
    if policy_loss_type == "gspo":
        mean = ((batch.new - batch.old) * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)
        ratio = mean.exp().unsqueeze(1) * batch.mask
    best = torch.min(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    if dual_clip is not None:
        best = torch.where(advantage < 0, torch.max(best, dual_clip * advantage), best)
    total = batch.mask.sum()
    loss = -(best * batch.mask).sum() / total
    if not token_level_loss or policy_loss_type == "gspo":
        length = batch.mask.sum(1)
        loss = -((best * batch.mask).sum(1) / (length + 1e-8)).sum() / (length > 0).sum()
    return loss + kl_coef * (openrlhf_kl(batch, kl_estimator) * batch.mask).sum() / total


def openrlhf_dpo(batch: Batch, beta: float = 0.1, label_smoothing: float = 0.0, ipo: bool = False) -> Tensor:
    """DPOLoss on sums over tokens, ipo included."""
    chosen, rejected, ref_chosen, ref_rejected = sides(batch)
    logits = (chosen - rejected) - (ref_chosen - ref_rejected)
    if ipo:
        return ((logits - 1 / (2 * beta)) ** 2).mean()
    right, wrong = F.logsigmoid(beta * logits), F.logsigmoid(-beta * logits)
    return -(right * (1 - label_smoothing) + wrong * label_smoothing).mean()


# TorchRL (PyPI 0.14.1, torchrl/objectives/llm/grpo.py), only what differs from the others


def torchrl_cispo(batch: Batch, advantage: Tensor, low: float, high: float) -> Tensor:
    """CISPOLoss: the clipped ratio itself is differentiated, so a clipped token has no gradient at all."""
    log_ratio = (batch.new - batch.old).clamp(math.log1p(-low), math.log1p(high))
    return -(log_ratio.exp() * advantage.unsqueeze(1) * batch.mask).sum() / batch.mask.sum()


def torchrl_kl_to_ref(batch: Batch) -> Tensor:
    """GRPOLoss.kl_to_ref: the mean is over all positions, padding and prompt included."""
    return (k3(batch) * batch.mask).mean()
