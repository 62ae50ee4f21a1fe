"""Where systems that share a name, or a name and its paper, differ: both sides on one batch, with the figures."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from support import parity, systems, systems_trl, systems_verl
from support.fakes import gradient_of
from support.parity import LENGTH, Case, Play
from support.systems import Batch

Formula = Callable[[Batch], Tensor]


@dataclass
class Difference:
    topic: str
    first: str
    left: Formula
    second: str
    right: Formula
    move: float = 0.3  # how far the policy went from the one that acted
    ref_move: float = 0.3  # and that one from the reference
    spread: float = 1.0  # scores are multiplied by this
    empty: bool = False  # the first row has no tokens
    group: int = parity.GROUP
    seed: int = 0

    def figures(self) -> tuple[float, float, float, float]:
        """The two losses, the ratio of their gradients' lengths (left / right) and the cosine between them."""
        p = self.play()
        left, right = self.left(self.view(p)), self.right(self.view(p))
        a, b = gradient_of(p.algo, left), gradient_of(p.algo, right)
        cosine = torch.nn.functional.cosine_similarity(a, b, dim=0).item()
        return left.item(), right.item(), (a.norm() / b.norm()).item(), cosine

    def play(self) -> Play:
        case = Case("", "", "grpo", "trl", {"group": self.group}, self.left)
        return parity.play(case, self.seed, self.move, self.empty, self.ref_move)

    def view(self, p: Play) -> Batch:
        batch = p.batch()
        return replace(batch, scores=batch.scores * self.spread)


def advantages(batch: Batch, correction: int, eps: float) -> Tensor:
    scores = batch.scores
    centered = scores - scores.mean(1, keepdim=True)
    return (centered / (scores.std(1, correction=correction, keepdim=True) + eps)).flatten()


def vanilla(correction: int, eps: float) -> Formula:
    """Clipped surrogates averaged over tokens, with any standard deviation."""
    return lambda batch: systems_verl.policy_loss(
        batch, advantage=advantages(batch, correction, eps).unsqueeze(1) * batch.mask, clip_ratio_c=1e9
    )


def micro_batches(loss_type: str) -> Formula:
    """TRL's loss with the batch cut into two accumulation steps; dapo divides by the tokens of both."""

    def loss(batch: Batch) -> Tensor:
        half = len(batch.new) // 2
        shares = []
        for rows in (slice(0, half), slice(half, None)):
            groups = slice(*(None if end is None else end // batch.scores.shape[1] for end in (rows.start, rows.stop)))
            timed = (x[rows] for x in (batch.new, batch.old, batch.ref, batch.mask))
            part = Batch(*timed, batch.scores[groups])
            share = 0.5 if loss_type != "dapo" else (part.mask.sum() / batch.mask.sum()).item()
            shares.append(share * systems_trl.grpo(part, loss_type))
        return shares[0] + shares[1]

    return loss


def trl(**settings: object) -> Formula:
    return lambda batch: systems_trl.grpo(batch, **settings)  # type: ignore[arg-type]


def verl(clip_ratio_c: float = 1e9, **settings: object) -> Formula:
    """Without the dual clip, so that it shows in one row only."""
    return lambda batch: systems_verl.policy_loss(batch, clip_ratio_c=clip_ratio_c, **settings)  # type: ignore[arg-type]


def openrlhf(estimator: str, reward_kl: float = 0.0, **settings: object) -> Formula:
    return lambda batch: systems.openrlhf(
        batch,
        systems.openrlhf_advantages(batch, estimator, reward_kl),
        **settings,  # type: ignore[arg-type]
    )


def di_engine_grpo(batch: Batch) -> Tensor:
    return systems.di_engine_grpo(batch, systems_trl.advantages(batch.scores))


def verl_penalised_baseline(batch: Batch) -> Tensor:
    """reinforce_plus_plus_baseline with use_kl_in_reward: the penalty is summed into the score before the baseline."""
    penalty = 0.3 * ((batch.old - batch.ref) * batch.mask).sum(1).view_as(batch.scores)
    return systems_verl.policy_loss(
        replace(batch, scores=batch.scores - penalty), adv_estimator="reinforce_plus_plus_baseline", clip_ratio_c=1e9
    )


def k3_only(kind: str) -> Formula:
    """The mean penalty of a token alone."""

    def loss(batch: Batch) -> Tensor:
        each = {
            "trl": systems.k3,
            "verl": lambda b: systems_verl.kl(b, "k3"),
            "straight": lambda b: systems_verl.kl(b, "k3+"),
            "corrected": lambda b: systems.k3(b) * torch.exp(b.new - b.old),
        }[kind](batch)
        return (each * batch.mask).sum() / batch.mask.sum()

    return loss


def torchrl_cispo(batch: Batch) -> Tensor:
    return systems.torchrl_cispo(batch, systems_trl.advantages(batch.scores), 0.2, 0.2)


SEQUENCE = "seq-mean-token-mean"
DIFFERENCES = [
    Difference(
        "GRPO, the average", "TRL, loss_type=dapo (default)", trl(), "TRL, loss_type=grpo", trl(loss_type="grpo")
    ),
    Difference("GRPO, dual clip", "TRL (none)", trl(), "verl (3.0)", verl(3.0), move=1.2),
    Difference("GRPO, deviation", "biased", vanilla(0, 1e-4), "unbiased", vanilla(1, 1e-4)),
    Difference("GRPO, ε of the deviation", "TRL (1e-4)", vanilla(1, 1e-4), "verl (1e-6)", vanilla(1, 1e-6)),
    Difference(
        "the same, scores that differ by a thousandth as much",
        "TRL (1e-4)",
        vanilla(1, 1e-4),
        "OpenRLHF (1e-9)",
        vanilla(1, 1e-9),
        spread=1e-3,
    ),
    Difference(
        "GRPO, a row without tokens",
        "TRL, loss_type=grpo",
        trl(loss_type="grpo"),
        f"verl, {SEQUENCE}",
        verl(loss_agg_mode=SEQUENCE),
        empty=True,
    ),
    Difference("GRPO, penalty", "DI-engine (0.1)", di_engine_grpo, "TRL, loss_type=grpo (0)", trl(loss_type="grpo")),
    Difference(
        "KL penalty, gradient",
        "k3",
        k3_only("trl"),
        "k3 · ratio (TRL 1.16's default)",
        k3_only("corrected"),
        move=0.0,
    ),
    Difference("KL penalty, gradient", "k3", k3_only("verl"), "verl k3+ (that of k2)", k3_only("straight"), move=0.0),
    Difference("KL penalty, clamp", "TRL k3", k3_only("trl"), "verl k3", k3_only("verl"), move=1.2),
    Difference(
        "bnpo and dapo, two micro-batches",
        "TRL, bnpo",
        micro_batches("bnpo"),
        "TRL, dapo",
        micro_batches("dapo"),
        seed=1,
    ),
    Difference(
        "Dr. GRPO, the constant",
        f"TRL, max_completion_length={LENGTH}",
        trl(loss_type="dr_grpo", scale_rewards="none", max_completion_length=LENGTH),
        "verl, no loss_scale_factor (padded length)",
        verl(loss_agg_mode="seq-mean-token-sum-norm", norm_adv_by_std_in_grpo=False),
    ),
    Difference(
        "Dr. GRPO, what it is",
        f"TRL, max_completion_length={LENGTH}",
        trl(loss_type="dr_grpo", scale_rewards="none", max_completion_length=LENGTH),
        "OpenRLHF, dr_grpo (advantages only)",
        openrlhf("dr_grpo"),
    ),
    Difference(
        "GSPO, the average",
        "TRL, importance_sampling_level=sequence alone",
        trl(importance_sampling_level="sequence"),
        "verl, gspo",
        verl(loss_mode="gspo"),
    ),
    Difference(
        "CISPO, the cap",
        "TRL, epsilon=0.2 (a cap of 0.2)",
        trl(loss_type="cispo"),
        "verl, cispo (0.8 to 1.2)",
        verl(loss_mode="cispo"),
    ),
    Difference(
        "CISPO, the cap",
        "TRL, epsilon_high=5 (a cap of 5)",
        trl(loss_type="cispo", epsilon_high=5.0),
        "verl, cispo (0.8 to 1.2)",
        verl(loss_mode="cispo"),
    ),
    Difference("CISPO, stop-gradient", "TorchRL (none)", torchrl_cispo, "verl, cispo", verl(loss_mode="cispo")),
    Difference(
        "RLOO, the ratio",
        "TRL, beta=0 (of the row)",
        lambda batch: systems_trl.rloo(batch, beta=0.0),
        "DI-engine (of the token)",
        systems.di_engine_rloo,
    ),
    Difference(
        "RLOO, the average",
        "DI-engine (rows)",
        systems.di_engine_rloo,
        "verl, rloo (tokens)",
        verl(adv_estimator="rloo"),
    ),
    Difference(
        "RLOO, before the first step",
        "TRL, beta=0 (sum of a row's gradients)",
        lambda batch: systems_trl.rloo(batch, beta=0.0),
        "DI-engine (their mean)",
        systems.di_engine_rloo,
        move=0.0,
    ),
    Difference(
        "REINFORCE++, deviation",
        "verl (unbiased)",
        verl(adv_estimator="reinforce_plus_plus"),
        "OpenRLHF (biased)",
        openrlhf("reinforce"),
    ),
    Difference(
        "REINFORCE++, score clip",
        "verl (none)",
        verl(adv_estimator="reinforce_plus_plus"),
        "OpenRLHF ([-10, 10])",
        openrlhf("reinforce"),
        spread=30.0,
    ),
    Difference(
        "REINFORCE++-baseline, penalty 0.3 in the reward",
        "verl (in the baseline)",
        verl_penalised_baseline,
        "OpenRLHF (to go, not in the baseline)",
        openrlhf("reinforce_baseline", 0.3),
    ),
    Difference(
        "DPO, label_smoothing=0.1",
        "TRL, sigmoid (does not read it)",
        systems_trl.dpo,
        "OpenRLHF (smooths)",
        lambda batch: systems.openrlhf_dpo(batch, label_smoothing=0.1),
        group=2,
    ),
    Difference(
        "IPO, log-probabilities of a side",
        "TRL (mean)",
        lambda batch: systems_trl.dpo(batch, "ipo"),
        "OpenRLHF (sum)",
        lambda batch: systems.openrlhf_dpo(batch, ipo=True),
        group=2,
    ),
]
