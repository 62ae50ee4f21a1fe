"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236): double, dueling, n-step and prioritised as fields.

y = Σ_{k<m} γ^k·r_{t+k} + γ^m·Q_target(s_{t+m}, a*) with m = n, fewer where the episode ends, and no bootstrap once it
terminated. a* maximises the target network, or with `double` (arXiv:1509.06461) the online one; n > 1 as in Rainbow
(arXiv:1710.02298, uncorrected for exploration); `dueling` is arXiv:1511.06581, `prioritized` arXiv:1511.05952.
The target network is copied every `sync_every` updates, or follows by an exponential average where `tau` is set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt, Le
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, memory, policies, returns
from rlkit.api import ActionValues, Algorithm, Env, Metrics, PolicyFactory
from rlkit.errors import UserError
from rlkit.fields import Count, Fraction, Limit, Natural, Needs, Positive

FALLS = Needs("epsilon", unlike="epsilon_end")
PRIORITIZED = Needs("prioritized", True)


@dataclass(frozen=True)
class Config(policies.Optimization):
    lr: Positive = 1e-3  # learning rate
    max_grad_norm: Limit = 10.0  # gradients are scaled down to this global norm
    steps: Count = 4  # environment steps per row and iteration
    updates: Count = 1  # optimiser steps per iteration
    capacity: Count = 50_000  # steps the replay buffer holds
    batch_size: Count = 64  # steps per optimiser step
    warmup_steps: Natural = 1_000  # steps remembered before the first update
    gamma: Fraction = 0.99  # discount per step
    double: bool = True  # the online network chooses the next action, the target network values it
    dueling: bool = False  # the network is V(s) + A(s, a) − mean A
    n_step: Count = 1  # rewards summed before the bootstrap
    prioritized: bool = False  # replay steps in proportion to (|TD error| + ε)^alpha, not evenly
    alpha: Annotated[Fraction, PRIORITIZED] = 0.6  # 0 replays evenly
    beta: Annotated[Fraction, PRIORITIZED] = 0.4  # exponent of the importance weights at the start; 1 at the end
    sync_every: Annotated[Count, Needs("tau", None)] = 500  # updates between copies into the target network
    tau: Annotated[float, Gt(0), Le(1)] | None = None  # instead: after each update target += tau · (online - target)
    epsilon: Fraction = 1.0  # probability of a random action at the start
    epsilon_end: Fraction = 0.05  # and at the end of the decay
    epsilon_decay: Annotated[Fraction, FALLS] = 0.2  # fraction of the run over which epsilon falls
    hold: Count = 1  # maximum number of steps a random action is repeated: n steps with probability 1 / (n (n + 1))


class DQN(Algorithm):
    saved = (*Algorithm.saved, "target", "explorer", "window", "updates", "policy.epsilon")
    config: Config
    policy: ActionValues

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        c = self.config = config
        self.updates = 0
        waiting = -(-c.warmup_steps // (env.rows * c.steps)) - 1  # iterations without an update
        if 0 < c.warmup <= waiting:
            raise UserError(
                f"algo.warmup={c.warmup} is over before anything is learned: algo.warmup_steps={c.warmup_steps} takes "
                f"{waiting} iterations; give algo.warmup={waiting + 1} or more, or leave it out"
            )
        policies.check_reach(env, "algo.n_step", c.n_step)
        policies.check_rollout(env, "algo.steps", c.steps, c.steps)
        step = policies.step_size(env) + 16 * c.prioritized  # and the tree of priorities
        memory.check(c.capacity * step, f"algo.capacity={c.capacity}", "give a smaller one")
        drawn = f"algo.batch_size={c.batch_size} with algo.updates={c.updates}"
        memory.check(8 * c.batch_size * c.updates, drawn, "give less")
        self.policy = network.q_network(env, c.dueling)
        self.explorer = policies.Persistent(self.policy, env.rows, c.hold) if c.hold > 1 else None
        self.target = self.policy.frozen()
        self.window = buffers.Window(c.n_step - 1)
        sizes = (env.seed, c.capacity, c.batch_size, c.updates, c.warmup_steps)
        self.buffer = buffers.Prioritized(*sizes, c.alpha, c.beta) if c.prioritized else buffers.Replay(*sizes)
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        c = self.config
        self.policy.epsilon = policies.epsilon(c.epsilon, c.epsilon_end, c.epsilon_decay, self.progress)
        if isinstance(self.buffer, buffers.Prioritized):
            self.buffer.beta = c.beta + (1 - c.beta) * self.progress
        return env.rollout(self.explorer or self.policy, steps=c.steps)  # [B, steps]

    def credit(self, rollout: TensorDict) -> TensorDict:
        """Rewards become n-step sums and successors what follows them; a bootstrap waits for the day of its replay."""
        if self.config.n_step == 1:
            return rollout.set("discount", torch.full_like(rollout["reward"], self.config.gamma))
        joined = self.window.join(rollout)  # [B, n - 1 + steps]
        total, last, discount = returns.n_step(joined["reward"], joined["done"], self.config.gamma, self.config.n_step)
        row = torch.arange(len(last), device=last.device).unsqueeze(-1)
        after = {key: joined[key][row, last] for key in ("next_observation", "terminated", "done")}
        return self.window.ready(joined.update({"reward": total, "discount": discount, **after}))

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        q = policies.pick(self.policy(batch["observation"]), batch["action"])
        with torch.no_grad():
            ahead = self.target(batch["next_observation"])
            best = (self.policy(batch["next_observation"]) if self.config.double else ahead).argmax(-1)
            next_value = policies.pick(ahead, best)
            target = returns.td_target(batch["reward"], next_value, batch["terminated"], batch["discount"])
            error = (target - q).abs()
        each = losses.huber(q, target)
        return (each * batch["weight"]).sum(), {"q": q, "td_error": error}

    @torch.no_grad()
    def after_step(self, learned: Sequence[tuple[TensorDict, dict[str, Tensor]]]) -> None:
        """Set the priorities of what was learned from, and move the target network."""
        if isinstance(self.buffer, buffers.Prioritized):
            for batch, metrics in learned:
                self.buffer.update(batch["index"], metrics["td_error"])
        self.updates += 1
        tau = self.config.tau or float(self.updates % self.config.sync_every == 0)
        if tau:
            for target, online in zip(self.target.parameters(), self.policy.parameters(), strict=True):
                target.lerp_(online, tau)


make = DQN
