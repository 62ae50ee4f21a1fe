"""Twin delayed deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

y = r + γ·min_i Q̄_i(s', clip(μ̄(s') + clip(ε, ±noise_clip))) with ε ~ N(0, target_noise²) and targets that follow,
J(Q_i) = ½·(Q_i(s, a) − y)²,   J(μ) = −Q_1(s, μ(s)) in every `policy_delay`-th update, in which the targets move, too.
All of it is computed with the parameters before the step, where the paper moves the critics first. Deviations are
fractions of half the range of an action. policy_delay=1, target_noise=0 and one critic would be DDPG.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import losses, policies, returns
from rlkit.api import Env, Metrics, PolicyFactory
from rlkit.fields import Choose, Count, Limit, Natural, Needs, NonNegative, Positive, Search

from ._replay import Following, OffPolicy, Replayed

Played = Annotated[NonNegative, Search(0.01, 0.5, log=True)]
Valued = Annotated[NonNegative, Search(0.05, 0.5)]


@dataclass(frozen=True)
class Config(Replayed):
    lr: Positive = 1e-3  # learning rate of the actor, and of the critics where they have none of their own
    critic_lr: Positive | None = None  # learning rate of the critics; none: lr
    adam_eps: Positive = 1e-8  # Adam's ε
    max_grad_norm: Limit = float("inf")  # gradients are scaled down to this global norm; inf: never
    steps: Count = 1  # environment steps per row and iteration
    capacity: Count = 1_000_000  # steps the replay buffer holds
    batch_size: Annotated[Count, Choose(64, 128, 256, 512)] = 256  # steps per optimizer step
    warmup_steps: Natural = 1_000  # steps played with uniformly random actions before the first update
    tau: Following = 0.005  # after each update of the actor target += tau · (online − target)
    noise: Played = 0.1  # standard deviation of the exploration noise
    target_noise: Valued = 0.2  # standard deviation of the noise on target actions
    noise_clip: Annotated[Positive, Needs("target_noise")] = 0.5  # bound of the noise on target actions
    policy_delay: Annotated[Count, Choose(1, 2, 4)] = 2  # updates of the critics for each update of the actor


class TD3(OffPolicy):
    config: Config

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        super().__init__(config, env)
        self.policy = network.twin_critics(env, deterministic=True)
        self.policy.noise = config.noise
        self.target = self.policy.frozen()
        self.critics = list(self.policy.critics.parameters())
        self.all, self.followers = ([*x.parameters()] for x in (self.policy, self.target))
        self.delayed = [p for p in self.policy.actor.parameters() if p.requires_grad]
        self.optimizer = policies.adam(self.policy.actor, config, (self.policy.critics, config.critic_lr or config.lr))

    def rollout(self, env: Env) -> TensorDict:
        self.policy.epsilon = float(self.buffer.seen < self.config.warmup_steps)
        self.anneal()
        return env.rollout(self.policy, steps=self.config.steps)  # [B, steps]

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        c = self.config
        for p in self.delayed:
            p.requires_grad_(self.moves_actor)  # otherwise the optimizer would move them by its running averages
        with torch.no_grad():
            ahead = self.target.choices(batch["next_observation"])
            around = self.policy.disturbed(ahead.action, c.target_noise, c.noise_clip)
            next_value = self.target.q_of(batch["next_observation"], ahead._replace(action=around)).amin(0).squeeze(-1)
            target = returns.td_target(batch["reward"], next_value, batch["terminated"], batch["discount"])
        q = self.policy.q(batch["observation"], batch["action"])  # [2, N]
        critic = losses.squared_error(q, target.expand_as(q)).sum(0)
        metrics: Metrics = {"q": q.mean(0), "td_error": (target - q).abs().mean(0), "critic_loss": critic}
        if not self.moves_actor:
            return (critic * batch["weight"]).sum(), metrics
        with policies.fixed(self.critics):
            now = self.policy.choices(batch["observation"])
            actor = -self.policy.q_of(batch["observation"], now, estimates=1)[0].squeeze(-1)
        return ((critic + actor) * batch["weight"]).sum(), metrics | {"actor_loss": actor}

    @property
    def moves_actor(self) -> bool:
        """Whether this update also changes the actor."""
        return (self.updates + 1) % self.config.policy_delay == 0

    def after_step(self, learned: Sequence[tuple[TensorDict, dict[str, Tensor]]]) -> None:
        """Set the priorities of the replayed steps, and move the targets when the actor is updated."""
        moved = self.moves_actor
        super().after_step(learned)
        for p in self.delayed:
            p.requires_grad_(True)
        if moved:
            policies.follow(self.followers, self.all, self.config.tau)


make = TD3
