"""Direct preference optimization (Rafailov et al. 2023, arXiv:2305.18290): a pair gives the credit.

Pairs come stored (env=preferences) or from the policy's own attempts, as in online DPO (Guo et al. 2024,
arXiv:2402.04792): the best and the worst of each scored group, or each two of which a judge (env.judge) prefers one. A
group of equal scores has no pair and is left out. On control a
row's log-probability is that of its actions; with deterministic dynamics it is the trajectory's (arXiv:2404.12358).
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, runtime_checkable

import torch
from annotated_types import Ge, Lt
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, policies, preference_losses, returns
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory, Stochastic
from rlkit.errors import UserError
from rlkit.fields import Count, Needs, NonNegative, Positive


@dataclass(frozen=True)
class Pairs(policies.Optimization):
    """The keys of every method that learns from pairs."""

    group: Count = 8  # attempts from each start, of which the best and the worst make a pair (stored pairs: 2)
    epochs: Count = 1  # passes over each rollout's pairs
    minibatches: Count = 1  # minibatches of each pass, one optimizer step each


@dataclass(frozen=True)
class Config(Pairs):
    loss: Literal["sigmoid", "ipo", "hinge", "simpo"] = "sigmoid"  # simpo: side=mean, reference=none and target_margin
    side: Literal["sum", "mean"] = "sum"  # a side's log π: the sum over its tokens (papers), or the mean (TRL's ipo)
    reference: Literal["computed", "stored", "none"] = "computed"  # of the frozen start, from the pairs file, or 0
    beta: Positive = 0.1  # β: strength of the pull to the reference; simpo: about 2
    label_smoothing: Annotated[float, Ge(0), Lt(0.5), Needs("loss", "sigmoid", "simpo")] = 0.0  # share of swapped pairs
    target_margin: Annotated[NonNegative, Needs("loss", "simpo")] = 0.5  # γ: by how much the chosen side must be ahead

    def __post_init__(self) -> None:
        if self.loss == "simpo" and self.reference == "stored":
            raise UserError("algo.reference=stored with algo.loss=simpo: simpo has no reference; leave one of them out")


@runtime_checkable
class Tempered(Protocol):
    """A policy whose log π is that of softmax(logits / temperature)."""

    temperature: float


class DPO(Algorithm):
    saved = (*Algorithm.saved, "reference")
    config: Config
    policy: Stochastic

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        two_sides(config.group, env)
        if config.reference == "stored" and not env.stored_reference:
            raise UserError(
                "algo.reference=stored needs env=preferences and a file whose rows have ref_chosen_logps and "
                "ref_rejected_logps, and here are none; use algo.reference=computed"
            )
        self.config = config
        simpo = config.loss == "simpo"
        self.mean, source = simpo or config.side == "mean", "none" if simpo else config.reference
        self.policy = network.actor(env)
        if source == "stored" and isinstance(self.policy, Tempered) and self.policy.temperature != 1:
            raise UserError(
                f"algo.reference=stored with policy.temperature={self.policy.temperature:g}: the log-probabilities of "
                "the file are at temperature 1; leave policy.temperature out, or use algo.reference=computed"
            )
        self.reference = policies.reference(self.policy) if source == "computed" else None
        self.stored = source == "stored"
        self.buffer = buffers.Rollout(env.seed, config.epochs, config.minibatches, over="row")
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, repeats=self.config.group)  # [P, G, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        pairs = best_pairs(rollout)  # [K, 2, T]
        if self.reference is not None:
            sides, steps = pairs.flatten(0, 1), self.policy.micro_steps
            ref = buffers.in_parts(self.reference.evaluate, sides, steps, entropy=False)["log_prob"]
            pairs["ref_log_prob"] = (ref.view(-1, 2, ref.shape[-1]) * pairs["mask"]).sum(-1)  # [K, 2], of whole sides
        elif not self.stored:
            pairs["ref_log_prob"] = pairs["score"].new_zeros(pairs.shape)
        return TensorDict(dict(pairs.items()), batch_size=pairs.batch_size[:1])  # rows are pairs: [K]

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        keys, mask = ["observation", "action", "mask"], batch["mask"]
        if "memory" in batch.keys():  # of the policy, and where it began anew
            keys += [key for key in ("memory", "begins", "done") if key in batch.keys()]
        rows = TensorDict({key: batch[key].flatten(0, 1) for key in keys}, batch_size=[2 * len(batch)])
        now = self.policy.evaluate(rows, entropy=False)["log_prob"].view_as(mask)
        steps = mask.sum(-1).clamp(min=1) if self.mean else 1
        chosen, rejected = ((now * mask).sum(-1) / steps).unbind(-1)  # [K] each
        ref_chosen, ref_rejected = (batch["ref_log_prob"] / steps).unbind(-1)
        each = self.each(chosen, rejected, ref_chosen, ref_rejected)
        margin = (chosen - ref_chosen) - (rejected - ref_rejected)
        # Where policy and reference are equal, the sign of the margin is that of rounding.
        size = chosen.abs() + rejected.abs() + ref_chosen.abs() + ref_rejected.abs()
        ahead = margin > torch.finfo(now.dtype).eps * size
        valid = batch["weight"] > 0
        return (each * batch["weight"]).sum(), {"margin": margin[valid], "pair_accuracy": ahead[valid]}

    def each(self, chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor) -> Tensor:
        c = self.config
        if c.loss == "simpo":
            return preference_losses.simpo(chosen, rejected, c.beta, c.target_margin, c.label_smoothing)
        if c.loss == "sigmoid":
            return preference_losses.dpo(chosen, rejected, ref_chosen, ref_rejected, c.beta, c.label_smoothing)
        pair_loss = {"ipo": preference_losses.ipo, "hinge": preference_losses.hinge}[c.loss]
        return pair_loss(chosen, rejected, ref_chosen, ref_rejected, c.beta)


def two_sides(group: int, env: Env) -> None:
    """Refuse groups that hold no pair, or do not fit into memory."""
    if group < 2:
        raise UserError(f"algo.group={group}: a pair needs at least 2 attempts from each start")
    if group != 2 and not env.plays:
        raise UserError(f"algo.group={group}: stored pairs have two sides; give algo.group=2")
    policies.check_rollout(env, "algo.group", group, None, group)


def best_pairs(rollout: TensorDict) -> TensorDict:
    """The best and the worst attempt from each start where they differ in score, [P, G, T] → [K, 2, T].

    Where a judge compared each two attempts, those are the pairs, where it said which is better. Where there is no
    pair at all, one is left that is masked out.
    """
    judged = "preference" in rollout.keys()
    rollout = rollout.reshape(-1, 2) if judged else rollout
    best, worst, differ = returns.best_and_worst(rollout["preference" if judged else "score"])
    start = torch.arange(len(best), device=best.device).unsqueeze(-1)
    pairs: TensorDict = rollout[start, torch.stack([best, worst], -1)]
    valid = differ & pairs["mask"].any(-1).all(-1)  # and where one side has no acted step
    pairs["mask"] = pairs["mask"] & valid[:, None, None]
    kept = valid.nonzero()[:, 0]
    return pairs[kept] if len(kept) else pairs[:1]


make = DPO
