"""DAPO, decoupled clip and dynamic sampling (Yu et al. 2025, arXiv:2503.14476): four changes to GRPO, each a field.

clip_high         above clip_low, so that unlikely tokens may grow
over=token        every token counts the same, so long answers are not diluted
dynamic_sampling  starts whose attempts all score the same say nothing: play others until the batch is full
overlong_filter   an attempt that was cut short is left out of the loss; or, more softly,
overlong_buffer   over the last steps before the limit an attempt loses up to overlong_penalty
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, group_scores, policies, returns
from rlkit.api import Env, Metrics, PolicyFactory
from rlkit.errors import Exhausted, UserError
from rlkit.fields import Count, Natural, Needs, NonNegative

from ._groups import Clip, Clipping, Over, Scale
from .grpo import GRPO


@dataclass(frozen=True)
class Config(Clip, Scale):
    clip_high: Clipping = 0.28
    over: Over = "token"
    dynamic_sampling: bool = True  # play more starts until env.rows of them have attempts of different scores
    tries: Annotated[Count, Needs("dynamic_sampling", True)] = 10  # rollouts an iteration may take
    overlong_filter: bool = False  # leave attempts that were cut short out of the loss
    overlong_buffer: Natural = 0  # steps before the limit in which the soft punishment grows; 0: none
    overlong_penalty: Annotated[NonNegative, Needs("overlong_buffer")] = 1.0  # maximum penalty, at the limit


class DAPO(GRPO):
    saved = (*GRPO.saved, "signal")
    config: Config

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        super().__init__(config, env, network)
        if config.dynamic_sampling:
            policies.check_rollout(env, "algo.tries", config.tries, None, config.repeats, rollouts=config.tries)
        self.rows = env.rows * config.repeats // config.group  # groups wanted
        self.signal = 1.0  # share of the starts played that said something
        self.limit = policies.longest(env, "algo.overlong_buffer=0") if config.overlong_buffer else 0
        if self.limit < config.overlong_buffer:
            raise UserError(
                f"algo.overlong_buffer={config.overlong_buffer} exceeds the longest attempt: give at most {self.limit}"
            )

    def rollout(self, env: Env) -> TensorDict:
        if self.config.dynamic_sampling:
            return self.refilled(env)
        played = super().rollout(env)
        self.signal = float(group_scores.differ(played["score"]).float().mean())
        return played

    def refilled(self, env: Env) -> TensorDict:
        """All that was played until `rows` starts have attempts of different scores; these starts come first."""
        played: list[TensorDict] = []
        found = 0
        while found < self.rows and len(played) < self.config.tries:
            played.append(super().rollout(env).clone())  # what made it may fill the same tensors again
            found += int(group_scores.differ(played[-1]["score"]).sum())
        if not found:
            raise Exhausted(
                f"in {len(played)} rollouts (algo.tries) each of {len(played) * self.rows} groups had equal scores "
                "only: nothing can be learned; use easier or harder problems, a larger algo.group, or "
                "algo.dynamic_sampling=false"
            )
        self.signal = found / (len(played) * self.rows)
        rollout = buffers.concatenate(played)
        return rollout[group_scores.differ(rollout["score"]).int().argsort(descending=True, stable=True)]

    def scores(self, rollout: TensorDict) -> Tensor:
        c, score = self.config, super().scores(rollout)
        if not self.limit:
            return score
        return score - c.overlong_penalty * returns.overlong(rollout["mask"].sum(-1), self.limit, c.overlong_buffer)

    def credit(self, rollout: TensorDict) -> TensorDict:
        rollout = rollout.copy()
        if self.config.dynamic_sampling:
            rollout = rollout[: min(self.rows, int(group_scores.differ(rollout["score"]).sum()))]
        cut = buffers.cut_short(rollout)
        credited = super().credit(rollout)
        if self.config.overlong_filter:
            credited["mask"] = credited["mask"] & ~cut.flatten().unsqueeze(-1)
        return credited.set("advantage", credited["advantage"] * credited["mask"])

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(batch)
        return loss, metrics | {"signal": torch.tensor(self.signal)}


make = DAPO
