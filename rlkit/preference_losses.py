"""Losses of pairs: which of two answers to a prompt is preferred. One number per pair in, one per pair out: [P].

`chosen` and `rejected` are rewards of whole texts, or their log-probabilities under the policy; `ref_chosen` and
`ref_rejected` are those under the reference policy.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.shapes import same_shape


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: float = 0.0) -> Tensor:
    """−log σ(r_w − r_l − m): the negative log-likelihood that w is preferred to l. r: rewards of whole texts, [P].

    Bradley & Terry 1952, doi:10.2307/2334029; as a reward model's loss, Ouyang et al. 2022, arXiv:2203.02155, eq. 1;
    the margin m, Touvron et al. 2023, arXiv:2307.09288, eq. 2. Equal rewards without a margin give log 2.
    """
    same_shape(chosen=chosen, rejected=rejected)
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

    Direct preference optimization, Rafailov et al. 2023, arXiv:2305.18290, eq. 7; ε > 0 is conservative DPO (Mitchell
    2023, https://ericmitchell.ai/cdpo.pdf), which has its minimum at σ(β·Δ) = 1 − ε. Equal policies give log 2.
    """
    same_shape(chosen=chosen, rejected=rejected, ref_chosen=ref_chosen, ref_rejected=ref_rejected)
    logit = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return -(1 - label_smoothing) * F.logsigmoid(logit) - label_smoothing * F.logsigmoid(-logit)


def ipo(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
    """(Δ − 1/(2β))², Δ as in `dpo`: [P]. A certain preference pulls Δ to 1/(2β), not to infinity.

    Azar et al. 2023, arXiv:2310.12036, eq. 17, with β for its τ. There Δ is of whole sides, in TRL of token means.
    """
    same_shape(chosen=chosen, rejected=rejected, ref_chosen=ref_chosen, ref_rejected=ref_rejected)
    return ((chosen - ref_chosen) - (rejected - ref_rejected) - 1 / (2 * beta)).square()


def hinge(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float) -> Tensor:
    """max(0, 1 − β·Δ), Δ as in `dpo`: [P]. No gradient once β·Δ > 1 (SLiC-HF, Zhao et al. 2023, arXiv:2305.10425)."""
    same_shape(chosen=chosen, rejected=rejected, ref_chosen=ref_chosen, ref_rejected=ref_rejected)
    return (1 - beta * ((chosen - ref_chosen) - (rejected - ref_rejected))).relu()


def simpo(chosen: Tensor, rejected: Tensor, beta: float, gamma: float, label_smoothing: float = 0.0) -> Tensor:
    """−log σ(β·[log π(y_w)/|y_w| − log π(y_l)/|y_l|] − γ): `chosen` and `rejected` are means over tokens, [P].

    Meng et al. 2024, arXiv:2405.14734, eq. 6: no reference, and a margin γ. Smoothed as in `dpo`.
    """
    same_shape(chosen=chosen, rejected=rejected)
    margin, zero = torch.full_like(chosen, gamma / beta), torch.zeros_like(rejected)
    return dpo(chosen, rejected, margin, zero, beta, label_smoothing)
