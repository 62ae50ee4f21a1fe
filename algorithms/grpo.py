"""Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300): the group gives the credit.

G attempts from each start are scored and compared with each other, so no critic is needed; the surrogate is PPO's. A
start is a prompt, or the reset state of a control environment. The rest of the family inherits from this file and says
what differs: the advantage (`advantage`), the term of each step (`surrogate`), or only a default.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Gt
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Algorithm, Env
from rlkit.errors import UserError
from rlkit.fields import Count, NonNegative, Positive

Above1 = Annotated[float, Gt(1)]


@dataclass(frozen=True)
class Config(policies.Optimization):
    group: Count = 8  # G attempts from each start, at least 2
    epochs: Count = 1  # passes over each rollout; above 1 the later ones are off-policy
    minibatches: Count = 1  # parts of each pass, one optimiser step each
    clip_low: Positive = 0.2  # the ratio stays above 1 - clip_low
    clip_high: Positive = 0.2  # and below 1 + clip_high
    dual_clip: Above1 | None = None  # c: where the advantage A is negative, a step's loss stays below c · |A|
    ratio: Literal["token", "mean", "sum"] = "token"  # of a step; of its row: the geometric mean, or the whole product
    scale: Literal["std", "batch", "none"] = "std"  # divide advantages by the group's, the batch's or no deviation
    std: Literal["unbiased", "biased"] = "unbiased"  # divisor of that variance: its number of scores less 1, or whole
    std_eps: NonNegative = 1e-4  # added to that standard deviation
    over: Literal["sequence", "token", "constant"] = "sequence"  # what counts the same in the loss: losses.reduction
    length: Count | None = None  # the divisor of over=constant, in steps; none: the longest that an attempt may be
    kl_coef: NonNegative = 0.0  # β of the KL penalty to the starting policy
    kl: Literal["k1", "k2", "k3", "unbiased"] = "k3"  # its estimator: losses.kl_k1 ... losses.kl_unbiased
    kl_in: Literal["loss", "reward"] = "loss"  # where the penalty goes; k1 only works in the reward
    kl_clip: Positive | None = None  # a step's estimate stays within ± this, and has no gradient beyond
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus


SAME: dict[str, Any] = {
    "clip_low": 0.2,
    "clip_high": 0.2,
    "scale": "std",
    "std": "unbiased",
    "kl": "k3",
    "kl_in": "loss",
}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": SAME | {"over": "sequence", "std_eps": 0.0, "kl_coef": 0.04},
    "trl": SAME | {"over": "token", "std_eps": 1e-4, "kl_coef": 0.0, "kl": "unbiased"},
    "verl": SAME | {"over": "token", "std_eps": 1e-6, "kl_coef": 0.0, "kl_clip": 10.0, "dual_clip": 3.0},
    "openrlhf": SAME | {"over": "token", "std_eps": 1e-9, "kl_coef": 0.0, "kl_clip": 10.0},
    "di_engine": SAME | {"over": "sequence", "kl_coef": 0.1},
}


class GRPO(Algorithm):
    saved = (*Algorithm.saved, "reference")
    least = 2  # attempts in a group
    unused: tuple[str, ...] = ()  # fields of the family that this member does not read

    def __init__(self, config: Any, env: Env, network: Any) -> None:
        if config.group < self.least:
            raise UserError(f"algo.group={config.group}: a group is its own baseline and needs at least 2 attempts")
        check_kl(config, scaled="scale" not in self.unused)
        for key in self.unused:
            if getattr(config, key) != getattr(type(config), key):
                raise UserError(
                    f"algo.{key}={getattr(config, key)} does nothing in {type(self).__name__}: leave it out"
                )
        policies.refuse_stored(env, type(self).__name__)
        self.config, self.progress = config, 0.0
        self.policy = network.actor(env)
        self.reference = policies.frozen_copy(self.policy) if config.kl_coef else None
        self.in_reward = config.kl_coef > 0 and config.kl_in == "reward"
        linear = not config.entropy_coef and (self.in_reward or not config.kl_coef)  # in the advantage
        length = (config.length or policies.longest(env, "algo.length")) if config.over == "constant" else 1
        self.buffer = buffers.Rollout(
            env.seed, config.epochs, config.minibatches, over=config.over, length=length, drop_flat=linear
        )
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        played = env.rollout(self.policy, repeats=self.config.group)
        return played if self.config.group > 1 else played.unsqueeze(1)  # [P, G, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        if self.reference is not None:
            rows = buffers.in_parts(self.reference.evaluate, buffers.flatten_groups(rollout), self.policy.micro_steps)
            rollout["ref_log_prob"] = rows["log_prob"].view_as(rollout["mask"])
        return buffers.flatten_groups(rollout.set("advantage", self.worth(rollout) * rollout["mask"]))  # [B, T]

    def worth(self, rollout: TensorDict) -> Tensor:
        """What each step was worth, [P, G, T]: here all steps of an attempt the same."""
        score = self.scores(rollout)
        if self.in_reward:
            penalty = self.divergence(rollout["log_prob"], rollout) * rollout["mask"]
            score = score - self.config.kl_coef * penalty.sum(-1)
        return self.advantage(score).unsqueeze(-1)

    def scores(self, rollout: TensorDict) -> Tensor:
        """What each attempt is judged by, [P, G]."""
        return rollout["score"]

    def advantage(self, score: Tensor) -> Tensor:
        """[P, G] → [P, G]."""
        c = self.config
        if c.scale == "none":
            return returns.group_centered(score)
        relative = returns.group_relative if c.scale == "std" else returns.batch_relative
        return relative(score, c.std_eps, correction=int(c.std == "unbiased"))

    def surrogate(self, log_ratio: Tensor, log_prob: Tensor, batch: TensorDict) -> Tensor:
        """What is minimised for each step, [B, T]; log_ratio is that of `Config.ratio`."""
        c, advantage = self.config, batch["advantage"]
        each = losses.clipped_surrogate(log_ratio, advantage, c.clip_low, c.clip_high)
        return losses.dual_clipped(each, advantage, c.dual_clip) if c.dual_clip else each

    def clipped(self, log_ratio: Tensor, advantage: Tensor) -> Tensor:
        """True where the clip acts, [B, T]."""
        return losses.clipped(log_ratio, advantage, self.config.clip_low, self.config.clip_high)

    def divergence(self, log_prob: Tensor, batch: TensorDict, log_ratio: Tensor | None = None) -> Tensor:
        """The estimate of KL(π‖π_ref) at each step."""
        c, ref = self.config, batch["ref_log_prob"]
        if c.kl == "unbiased" and log_ratio is not None:
            return losses.kl_unbiased(log_prob, ref, log_ratio)
        kl = {"k1": losses.kl_k1, "k2": losses.kl_k2, "k3": losses.kl_k3}[c.kl](log_prob, ref)
        return kl if c.kl_clip is None else kl.clamp(-c.kl_clip, c.kl_clip)

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        c, now = self.config, self.policy.evaluate(batch)
        per_step = now["log_prob"] - batch["log_prob"]
        of_row = {"token": lambda x, _: x, "mean": losses.row_mean, "sum": losses.row_sum}[c.ratio]
        log_ratio = of_row(per_step, batch["mask"])
        each = self.surrogate(log_ratio, now["log_prob"], batch)
        metrics = {
            "kl": losses.kl_k3(batch["log_prob"], now["log_prob"]),
            "clip_fraction": self.clipped(log_ratio, batch["advantage"]),
            "entropy": now["entropy"],
            "ratio": log_ratio.detach().exp(),
        }
        if self.reference is not None:
            penalty = self.divergence(now["log_prob"], batch, log_ratio)
            metrics["ref_kl"] = penalty
            each = each + c.kl_coef * penalty if c.kl_in == "loss" else each
        if c.entropy_coef:
            each = each - c.entropy_coef * now["entropy"]
        return (each * batch["weight"]).sum(), metrics


def check_kl(config: Any, scaled: bool) -> None:
    """k1 has the right value and no gradient to follow; as a reward it is a number like any other."""
    if config.kl_coef and config.kl_in == "reward" and scaled and config.scale == "std":
        raise UserError(
            "algo.kl_in=reward with algo.scale=std would blow up what the penalty differs by within groups of equal "
            "scores; use algo.scale=none or batch, or algo.kl_in=loss"
        )
    if config.kl_clip and config.kl == "unbiased":
        raise UserError("algo.kl_clip would bias algo.kl=unbiased: give one of them")
    if config.kl_coef and config.kl_in == "loss" and config.kl == "k1":
        raise UserError(
            "algo.kl=k1 with algo.kl_in=loss would do nothing: the expected gradient of k1 is zero; "
            "use algo.kl_in=reward, or algo.kl=k2, k3 or unbiased"
        )
    if config.kl_coef and config.kl_in == "reward" and config.kl == "unbiased":
        raise UserError("algo.kl=unbiased corrects a gradient and a reward has none; use algo.kl=k1, k2 or k3")


make = GRPO
