"""Per-element losses and the weights that reduce them: pure functions, tensors in, tensors out.

A loss is Σ weight·each. The surrogates below return `each`; `reduction` returns `weight` for a *whole* minibatch, so
that splitting it afterwards (micro-batches, packing, ranks) changes neither value nor gradient.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Over = Literal["token", "sequence", "constant", "row"]


def reduction(mask: Tensor, over: Over, length: int = 1) -> Tensor:
    """The weight of each element of a minibatch; masked elements get 0. mask: [B, T] (or [N]: steps without rows).

    token      1 / Σ mask                  every step counts the same        (DAPO, arXiv:2503.14476; PPO)
    sequence   1 / (rows · steps of row)   every row counts the same         (GRPO, arXiv:2402.03300)
    constant   1 / (B · length)            a fixed divisor, say the budget   (Dr. GRPO, arXiv:2503.20783)
    row        1 / rows, shape [B]         for losses of one number a row    (DPO, arXiv:2305.18290)
    """
    m = mask.float()
    if over == "token":
        return m / m.sum().clamp(min=1)
    if over == "constant":
        return m / (mask.shape[0] * length)
    acted = m.flatten(1).amax(1)
    if over == "row":
        return acted / acted.sum().clamp(min=1)
    return m / (acted.sum().clamp(min=1) * m.sum(-1, keepdim=True).clamp(min=1))


def policy_gradient(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """−A·log π(a|s), whose gradient is the score-function estimator (Williams 1992, doi:10.1007/BF00992696)."""
    return -advantage * log_prob


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """−min(ρ·A, clip(ρ, 1 − low, 1 + high)·A) with ρ = exp(log π_θ − log π_b). All shapes equal.

    PPO, Schulman et al. 2017, arXiv:1707.06347, eq. 7; low ≠ high is DAPO's clip-higher (arXiv:2503.14476). It takes
    the log-ratio, so a ratio per token or per sequence goes through the same function. At ρ = 1 the value is −A and the
    gradient −A·∇log π; with infinite bounds it is plain importance sampling.
    """
    ratio = log_ratio.clamp(-20, 20).exp()  # e^88 is already infinite in float32, and infinity times 0 is not a number
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def clipped(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """True where `clipped_surrogate` has no gradient: ρ left the interval on the side its advantage pushes to."""
    return torch.where(advantage > 0, log_ratio.exp() > 1 + high, (log_ratio.exp() < 1 - low) & (advantage < 0))


def kl_k3(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """π_ref/π − log(π_ref/π) − 1 ≥ 0: an unbiased estimate of KL(π‖π_ref) for actions drawn from π.

    Schulman 2020, http://joschu.net/blog/kl-approx.html; GRPO's penalty, arXiv:2402.03300, eq. 4.
    """
    gap = ref_log_prob - log_prob
    return gap.expm1() - gap


def squared_error(value: Tensor, target: Tensor) -> Tensor:
    """½(v − y)²: a step of plain SGD at rate α on a table entry is v += α·(y − v)."""
    return 0.5 * (value - target).square()


def huber(value: Tensor, target: Tensor) -> Tensor:
    """½δ² for |δ| ≤ 1, |δ| − ½ beyond (Huber 1964; DQN's error clipping, Mnih et al. 2015)."""
    return F.huber_loss(value, target, reduction="none")


def clipped_value(value: Tensor, old_value: Tensor, target: Tensor, clip: float) -> Tensor:
    """max of ½(v − y)² and ½(v_old + clip(v − v_old, ±c) − y)²: the value may move no further than c a rollout.

    From the PPO of OpenAI Baselines; see Andrychowicz et al. 2020, arXiv:2006.05990. c = ∞ is `squared_error`.
    """
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(squared_error(value, target), squared_error(near, target))


def dpo(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
    """−log σ(β·[(log π(y_w) − log π_ref(y_w)) − (log π(y_l) − log π_ref(y_l))]). Log-probabilities of rows: [P].

    Direct preference optimisation, Rafailov et al. 2023, arXiv:2305.18290, eq. 7. Equal policies give log 2.
    """
    return -F.logsigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))
