"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1801.01290, arXiv:1812.05905): reward and entropy are maximized.

y = r + γ·(min_i Q̄_i(s', a') − α·log π(a'|s')) with a' ~ π(·|s') and target critics Q̄_i that follow the Q_i,
J(Q_i) = ½·(Q_i(s, a) − y)²,   J(π) = α·log π(ã|s) − min_i Q_i(s, ã) with ã ~ π(·|s),   J(α) = log α·(H(π(·|s)) − H̄).
Of discrete actions the expectation over all takes the place of one that is drawn (arXiv:1910.07207). The three losses
are one: each leaves out the gradient of what belongs to the others. All of it is computed with the parameters before
the step, where the paper moves the critics first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import losses, policies, returns
from rlkit.api import Env, Metrics, PolicyFactory
from rlkit.fields import Choose, Count, Limit, Natural, Needs, Positive

from ._replay import Following, OffPolicy, Replayed

Target = Annotated[float | None, Needs("learn_temperature", True)]


@dataclass(frozen=True)
class Config(Replayed):
    lr: Positive = 3e-4  # learning rate of the actor, and of the others where they have none of their own
    critic_lr: Positive | None = None  # learning rate of the critics; none: lr
    adam_eps: Positive = 1e-8  # Adam's ε
    max_grad_norm: Limit = float("inf")  # gradients are scaled down to this global norm; inf: never
    steps: Count = 1  # environment steps per row and iteration
    capacity: Count = 1_000_000  # steps the replay buffer holds
    batch_size: Annotated[Count, Choose(64, 128, 256, 512)] = 256  # steps per optimizer step
    warmup_steps: Natural = 100  # steps played with uniformly random actions before the first update
    tau: Following = 0.005  # after each update target += tau · (critics − target)
    temperature: Positive = 1.0  # α: weight of the entropy, at the start where it is learned
    learn_temperature: bool = True  # adapt α so that the entropy becomes target_entropy
    target_entropy: Target = None  # target of the entropy; none: −d for d components, ½ log A for A allowed actions


class SAC(OffPolicy):
    saved = (*OffPolicy.saved, "temperature")
    config: Config

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        super().__init__(config, env)
        self.policy = network.twin_critics(env)
        self.target = self.policy.frozen()
        self.critics, self.followers = ([*x.critics.parameters()] for x in (self.policy, self.target))
        self.temperature = policies.Temperature(config.temperature, config.learn_temperature).to(env.device)
        others = (self.policy.critics, config.critic_lr or config.lr), (self.temperature, config.lr)
        self.optimizer = policies.adam(self.policy.actor, config, *others)

    def rollout(self, env: Env) -> TensorDict:
        self.policy.epsilon = float(self.buffer.seen < self.config.warmup_steps)
        self.anneal()
        return env.rollout(self.policy, steps=self.config.steps)  # [B, steps]

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        c, alpha = self.config, self.temperature()
        with torch.no_grad():
            ahead = self.policy.choices(batch["next_observation"])
            soft = self.target.q_of(batch["next_observation"], ahead).amin(0) - alpha * ahead.log_prob
            next_value = (ahead.probability * soft).sum(-1)
            target = returns.td_target(batch["reward"], next_value, batch["terminated"], batch["discount"])
        q = self.policy.q(batch["observation"], batch["action"])  # [2, N]
        critic = losses.squared_error(q, target.expand_as(q)).sum(0)
        now = self.policy.choices(batch["observation"])
        with policies.fixed(self.critics):
            value = self.policy.q_of(batch["observation"], now).amin(0)
        actor = (now.probability * (alpha * now.log_prob - value)).sum(-1)
        entropy = -(now.probability * now.log_prob).sum(-1).detach()
        loss = critic + actor
        if c.learn_temperature:
            wanted = self.policy.entropy_target(now) if c.target_entropy is None else c.target_entropy
            loss = loss + self.temperature.log_alpha * (entropy - wanted)
        metrics: Metrics = {"q": q.mean(0), "td_error": (target - q).abs().mean(0), "entropy": entropy}
        metrics |= {"critic_loss": critic, "actor_loss": actor, "temperature": alpha.expand_as(entropy)}
        return (loss * batch["weight"]).sum(), metrics

    def after_step(self, learned: Sequence[tuple[TensorDict, dict[str, Tensor]]]) -> None:
        """Set the priorities of the replayed steps, and move the target critics."""
        super().after_step(learned)
        policies.follow(self.followers, self.critics, self.config.tau)


make = SAC
