"""Group relative policy optimization (Shao et al. 2024, arXiv:2402.03300): the group gives the credit.

G attempts from each start are scored and compared with each other, so no critic is needed; the surrogate is PPO's. A
start is a prompt, or the reset state of a control environment. The rest of the family walks the same rooms with a
`Config` of its own, composed from the parts in `_groups.py`: they hold the formulas of the advantage and the surrogate.
"""

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, divergences, losses, policies
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory, Stochastic, UserError

from ._groups import Clip, Groups, Scale


@dataclass(frozen=True)
class Config(Clip, Scale):
    """All three parts as they are."""


def check_starts(config: Groups, env: Env) -> None:
    """Refuse groups of attempts that say nothing about each other, or that do not come out even."""
    policies.refuse_groups(env, config.group)
    if config.starts == "shared":
        return
    if env.kind == "text":
        raise UserError(
            "algo.starts=own would compare answers to different prompts, as if all were equally hard: leave it out"
        )
    if env.rows % config.group:
        raise UserError(
            f"algo.starts=own makes groups of algo.group={config.group} starts, and env.rows={env.rows} is not "
            f"a multiple of that: give env.rows={env.rows * config.group} for as many attempts as with starts that "
            "are shared"
        )


class GRPO(Algorithm):
    saved = (*Algorithm.saved, "reference")
    config: Groups
    policy: Stochastic
    buffer: buffers.Rollout

    def __init__(self, config: Groups, env: Env, network: PolicyFactory) -> None:
        policies.refuse_stored(env, "the GRPO family")
        check_starts(config, env)
        policies.check_rollout(env, "algo.group", config.group, None, config.repeats)
        self.config, self.policy = config, network.actor(env)
        self.reference = policies.reference(self.policy) if config.kl_coef else None
        length = (config.length or policies.longest(env, "algo.length")) if config.over == "constant" else 1
        self.buffer = buffers.Rollout(
            env.seed,
            config.epochs,
            config.minibatches,
            over=config.over,
            length=length,
            drop_flat=self.is_linear(),
            sampler_cap=config.sampler_cap,
        )
        self.clip_width = config.clip_width()
        self.optimizer = policies.adam(self.policy, config)

    def is_linear(self) -> bool:
        """Whether the loss of a row without advantage is 0. One of a user's, or a surrogate, may add to such rows."""
        c = self.config
        ours = {given.__module__.rpartition(".")[0] for given in (type(self).loss, type(c).surrogate)}
        return ours == {__package__} and not c.entropy_coef and (c.in_reward or not c.kl_coef)

    def rollout(self, env: Env) -> TensorDict:
        played = env.rollout(self.policy, repeats=self.config.repeats)
        return played if self.config.repeats > 1 else played.view(-1, self.config.group)  # [P, G, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        if self.reference is not None:
            rows, steps = buffers.flatten_groups(rollout), self.policy.micro_steps
            ref = buffers.in_parts(self.reference.evaluate, rows, steps, entropy=False)["log_prob"]
            ref = ref.view_as(rollout["mask"])
            if self.config.in_reward:
                ref = divergences.beyond_rounding(rollout["log_prob"], ref, rollout["mask"])
            rollout["ref_log_prob"] = ref
        return buffers.flatten_groups(rollout.set("advantage", self.worth(rollout) * rollout["mask"]))  # [B, T]

    def worth(self, rollout: TensorDict) -> Tensor:
        """The advantage of each step, [P, G, T]: here the same for all steps of an attempt."""
        score = self.scores(rollout)
        if self.config.in_reward:
            penalty = self.config.divergence(rollout["log_prob"], rollout) * rollout["mask"]
            score = score - self.config.kl_coef * penalty.sum(-1)
        return self.config.advantage(score).unsqueeze(-1)

    def scores(self, rollout: TensorDict) -> Tensor:
        """The score of each attempt, [P, G]."""
        score: Tensor = rollout["score"]
        return score

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        c, now = self.config, self.policy.evaluate(batch)
        of_row = {"token": lambda x, _: x, "mean": losses.row_mean, "sum": losses.row_sum}[c.ratio]
        log_ratio = of_row(losses.log_ratio(now["log_prob"], batch["log_prob"]), batch["mask"])
        each, clipped = c.surrogate(log_ratio, now["log_prob"], batch)
        metrics = {
            "kl": divergences.kl_k3(batch["log_prob"], now["log_prob"]),
            "clip_fraction": clipped,
            "entropy": now["entropy"],
            "ratio": log_ratio.detach().exp(),
        }
        if self.reference is not None:
            metrics["ref_kl"] = penalty = c.divergence(now["log_prob"], batch, log_ratio)
            each = losses.plus(each, penalty, c.kl_coef) if c.kl_in == "loss" else each
        each = losses.plus(each, now["entropy"], -c.entropy_coef)
        return losses.weighted(each, batch["weight"]), metrics


make = GRPO
