"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236) with the double estimator (arXiv:1509.06461).

The target network is copied every `sync_every` updates, or follows by an exponential average where `tau` is set.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Count, Env, Fraction, Natural, Positive, UserError


@dataclass(frozen=True)
class Config(policies.Optimization):
    lr: Positive = 1e-3  # learning rate
    max_grad_norm: Positive = 10.0  # gradients are scaled down to this global norm
    steps: Count = 4  # environment steps per row and iteration
    updates: Count = 1  # optimiser steps per iteration
    capacity: Count = 50_000  # steps the replay buffer holds
    batch_size: Count = 64  # steps per optimiser step
    warmup_steps: Natural = 1_000  # steps played before the first update
    gamma: Fraction = 0.99  # discount per step
    double: bool = True  # the online network chooses the next action, the target network values it
    sync_every: Count = 500  # updates between copies into the target network
    tau: Positive | None = None  # instead: after each update target += tau · (online - target)
    epsilon: Fraction = 1.0  # probability of a random action at the start
    epsilon_end: Fraction = 0.05  # and at the end of the decay
    epsilon_decay: Fraction = 0.2  # fraction of the run over which epsilon falls


class DQN:
    def __init__(self, config: Config, env: Env, network: Any) -> None:
        if not isinstance(network, policies.Network):
            raise UserError("dqn plays control environments and this one is text; use algo=grpo or algo=ppo")
        self.config, self.progress, self.updates = config, 0.0, 0
        actions = policies.discrete_actions(env, "dqn", "algo=ppo")
        self.policy = policies.QNetwork(env, network, actions)
        self.target = policies.frozen_copy(self.policy)
        c = config
        self.buffer = buffers.Replay(env.seed, c.capacity, c.batch_size, c.updates, c.warmup_steps)
        self.optimizer = policies.adam(self.policy, config)
        self.optimizer.register_step_post_hook(self.follow)

    def rollout(self, env: Env) -> TensorDict:
        c = self.config
        self.policy.epsilon = policies.epsilon(c.epsilon, c.epsilon_end, c.epsilon_decay, self.progress)
        return env.rollout(self.policy, steps=c.steps)  # [B, steps]

    def credit(self, rollout: TensorDict) -> TensorDict:
        return rollout  # none yet: the target depends on the networks of the day it is replayed

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        q = policies.pick(self.policy(batch["observation"]), batch["action"])
        with torch.no_grad():
            chooser = self.policy if self.config.double else self.target
            best = chooser(batch["next_observation"]).argmax(-1)
            next_value = policies.pick(self.target(batch["next_observation"]), best)
            target = returns.td_target(batch["reward"], next_value, batch["terminated"], self.config.gamma)
        each = losses.huber(q, target)
        return (each * batch["weight"]).sum(), {"q": q, "td_error": (target - q).abs()}

    @torch.no_grad()
    def follow(self, *_: Any) -> None:
        """Move the target network after an optimiser step."""
        self.updates += 1
        tau = self.config.tau or float(self.updates % self.config.sync_every == 0)
        if tau:
            torch._foreach_lerp_(list(self.target.parameters()), list(self.policy.parameters()), tau)


make = DQN
