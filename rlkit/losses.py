"""Per-element losses and the weights that reduce them: pure functions, tensors in, tensors out.

A loss is Σ weight·each. The surrogates below return `each`; `reduction` returns `weight` for a *whole* minibatch, so
that splitting it afterwards (micro-batches, packing, ranks) changes neither value nor gradient.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

FAR = 20.0  # a log-ratio beyond which exponentials are not taken: e^88 is already infinite in float32
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
    ratio = log_ratio.clamp(-FAR, FAR).exp()  # infinity times 0 is not a number
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def clipped(log_ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """True where `clipped_surrogate` has no gradient: ρ left the interval on the side its advantage pushes to."""
    ratio = log_ratio.exp()
    return torch.where(advantage > 0, ratio > 1 + high, (ratio < 1 - low) & (advantage < 0))


def dual_clipped(each: Tensor, advantage: Tensor, bound: float) -> Tensor:
    """min(each, c·|A|) where A < 0: a step that was bad and became likelier is not pushed down without limit.

    Dual-clip PPO, Ye et al. 2019, arXiv:1912.09729, with c > 1 + high; c = ∞ changes nothing.
    """
    return torch.where(advantage < 0, torch.minimum(each, -bound * advantage), each)


def clipped_weight(log_ratio: Tensor, log_prob: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """−sg(clip(ρ, 1 − low, 1 + high))·A·log π: the clipped ratio is only a weight, so every step keeps a gradient.

    CISPO, MiniMax-M1 2025, arXiv:2506.13585, eq. 4; sg stops the gradient. All shapes equal.
    """
    ratio = log_ratio.detach().clamp(-FAR, FAR).exp()
    return -ratio.clamp(1 - low, 1 + high) * advantage * log_prob


def soft_gated(log_ratio: Tensor, advantage: Tensor, positive: float, negative: float) -> Tensor:
    """−A·(4/τ)·σ(τ·(ρ − 1)) with τ = positive where A > 0, else negative: a smooth gate in place of the hard clip.

    SAPO, Gao et al. 2025, arXiv:2511.20347. At ρ = 1 the gradient is −A·∇log π, far from it it fades. All shapes equal.
    """
    tau = torch.where(advantage > 0, positive, negative).to(log_ratio.dtype)
    return -advantage * 4 / tau * torch.sigmoid(tau * (log_ratio.clamp(-FAR, FAR).exp() - 1))


def row_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the steps of each row where mask is True, at every step. x, mask: [B, T] → [B, T]."""
    return row_sum(x, mask) / mask.sum(-1, keepdim=True).clamp(min=1)


def row_sum(x: Tensor, mask: Tensor) -> Tensor:
    """The sum over the steps of each row where mask is True, at every step. x, mask: [B, T] → [B, T]."""
    return (x * mask).sum(-1, keepdim=True).expand_as(x)


def geometric_surrogate(log_ratio: Tensor, advantage: Tensor, mask: Tensor, low: float, high: float) -> Tensor:
    """−A·(Π_t ρ̃_t)^(1/T), with log ρ̃_t = min(log ρ_t, high) where A > 0, max(log ρ_t, −low) where A < 0. [B, T].

    GMPO, Zhao et al. 2025, arXiv:2507.20673: the geometric mean over a row's steps, clipped in log space step by step.
    """
    near = torch.where(advantage > 0, log_ratio.clamp(max=high), log_ratio.clamp(min=-low))
    return -advantage * row_mean(near, mask).clamp(-FAR, FAR).exp()


def kl_k1(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """log π − log π_ref: an unbiased estimate of KL(π‖π_ref) for actions drawn from π, of high variance.

    Schulman 2020, http://joschu.net/blog/kl-approx.html. For rewards: as a loss its expected gradient is E[∇log π] = 0.
    """
    return log_prob - ref_log_prob


def kl_k2(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """½(log π − log π_ref)²: biased in value, and on-policy its expected gradient is exactly that of KL(π‖π_ref).

    Schulman 2020, http://joschu.net/blog/kl-approx.html.
    """
    return 0.5 * (log_prob - ref_log_prob).square()


def kl_k3(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """π_ref/π − log(π_ref/π) − 1 ≥ 0: an unbiased estimate of KL(π‖π_ref) for actions drawn from π.

    Schulman 2020, http://joschu.net/blog/kl-approx.html; GRPO's penalty, arXiv:2402.03300, eq. 4. Beyond a log-ratio of
    20 it goes on as a straight line, so that float32 never overflows and the pull never ends.
    """
    gap = ref_log_prob - log_prob
    return gap.clamp(max=FAR).expm1() + math.exp(FAR) * (gap - FAR).clamp(min=0) - gap


def kl_unbiased(log_prob: Tensor, ref_log_prob: Tensor, log_ratio: Tensor) -> Tensor:
    """ρ·k3: unbiased in value and in gradient also when the actions came from an older policy, ρ = π/π_b.

    DeepSeek-V3.2 2025, arXiv:2512.02556. The gradient flows through ρ as well.
    """
    return log_ratio.clamp(-FAR, FAR).exp() * kl_k3(log_prob, ref_log_prob)


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


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: float = 0.0) -> Tensor:
    """−log σ(r_w − r_l − m): the negative log-likelihood that w is preferred to l. Rewards of whole texts: [P].

    Bradley & Terry 1952, doi:10.2307/2334029; as a reward model's loss, Ouyang et al. 2022, arXiv:2203.02155, eq. 1;
    the margin m, Touvron et al. 2023, arXiv:2307.09288, eq. 2. Equal rewards without a margin give log 2.
    """
    return -F.logsigmoid(chosen - rejected - margin)


def dpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
    label_smoothing: float = 0.0,
) -> Tensor:
    """−(1 − ε)·log σ(β·Δ) − ε·log σ(−β·Δ), Δ = log π(y_w) − log π_ref(y_w) − [log π(y_l) − log π_ref(y_l)]: [P].

    Direct preference optimisation, Rafailov et al. 2023, arXiv:2305.18290, eq. 7; ε > 0 is conservative DPO (Mitchell
    2023, https://ericmitchell.ai/cdpo.pdf), which has its minimum at σ(β·Δ) = 1 − ε. Equal policies give log 2.
    """
    logit = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -(1 - label_smoothing) * F.logsigmoid(logit) - label_smoothing * F.logsigmoid(-logit)


def ipo(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
    """(Δ − 1/(2β))², Δ as in `dpo`: [P]. A certain preference pulls Δ to 1/(2β), not to infinity.

    Azar et al. 2023, arXiv:2310.12036, eq. 17, with β for its τ. There Δ is of whole sides, in TRL of token means.
    """
    return ((chosen - ref_chosen) - (rejected - ref_rejected) - 1 / (2 * beta)).square()


def hinge(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
    """max(0, 1 − β·Δ), Δ as in `dpo`: [P]. No gradient once β·Δ > 1 (SLiC-HF, Zhao et al. 2023, arXiv:2305.10425)."""
    return (1 - beta * ((chosen - ref_chosen) - (rejected - ref_rejected))).relu()


def simpo(chosen: Tensor, rejected: Tensor, beta: float, gamma: float, label_smoothing: float = 0.0) -> Tensor:
    """−log σ(β·[log π(y_w)/|y_w| − log π(y_l)/|y_l|] − γ) of means over the tokens of each side: [P].

    Meng et al. 2024, arXiv:2405.14734, eq. 6: no reference, and a margin γ. Smoothed as in `dpo`.
    """
    return dpo(
        chosen, rejected, torch.full_like(chosen, gamma / beta), torch.zeros_like(rejected), beta, label_smoothing
    )
