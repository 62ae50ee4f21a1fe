"""Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290): a pair gives the credit.

Pairs come stored (env=preferences) or from the policy's own attempts: the best and the worst of each scored group, as
in online DPO (Guo et al. 2024, arXiv:2402.04792). A group of equal scores has no pair and is left out. On control a
row's log-probability is that of its actions; with deterministic dynamics it is the trajectory's (arXiv:2404.12358).
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Count, Env, Positive, UserError


@dataclass(frozen=True)
class Config(policies.Optimization):
    group: Count = 8  # attempts from each start, of which the best and the worst make a pair (stored pairs: 2)
    epochs: Count = 1  # passes over each rollout's pairs
    minibatches: Count = 1  # parts of each pass, one optimiser step each
    beta: Positive = 0.1  # how strongly the policy is held to the reference


class DPO:
    def __init__(self, config: Config, env: Env, network: Any) -> None:
        if config.group < 2:
            raise UserError(f"algo.group={config.group}: a pair needs at least 2 attempts from each start")
        if config.group != 2 and not getattr(env, "plays", True):
            raise UserError(f"algo.group={config.group}: stored pairs have two sides; leave algo.group=2")
        self.config, self.progress = config, 0.0
        self.policy = policies.actor(env, network)
        self.reference = policies.frozen_copy(self.policy)
        self.buffer = buffers.Rollout(env.seed, config.epochs, config.minibatches, over="row")
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, repeats=self.config.group)  # [P, G, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        best, worst, differ = returns.best_and_worst(rollout["score"])
        start = torch.arange(len(best), device=best.device).unsqueeze(-1)
        pairs = rollout[start, torch.stack([best, worst], -1)]  # [P, 2, T]
        ref = buffers.in_parts(self.reference.evaluate, pairs.flatten(0, 1), self.policy.micro_steps)["log_prob"]
        pairs["ref_log_prob"] = ref.unflatten(0, (-1, 2))
        pairs["mask"] = pairs["mask"] & differ[:, None, None]
        return TensorDict(dict(pairs.items()), batch_size=pairs.batch_size[:1])  # rows are pairs: [P]

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        keys, mask = ("observation", "action", "mask"), batch["mask"]
        rows = TensorDict({key: batch[key].flatten(0, 1) for key in keys}, batch_size=[2 * len(batch)])
        now = self.policy.evaluate(rows)["log_prob"].unflatten(0, (-1, 2))
        chosen, rejected = (now * mask).sum(-1).unbind(-1)  # [P] each
        ref_chosen, ref_rejected = (batch["ref_log_prob"] * mask).sum(-1).unbind(-1)
        each = losses.dpo(chosen, rejected, ref_chosen, ref_rejected, self.config.beta)
        margin = (chosen - ref_chosen) - (rejected - ref_rejected)
        valid = batch["weight"] > 0
        return (each * batch["weight"]).sum(), {"margin": margin[valid], "pair_accuracy": margin[valid] > 0}


make = DPO
