"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236): double, dueling, n-step and prioritized as fields.

y = Σ_{k<m} γ^k·r_{t+k} + γ^m·Q_target(s_{t+m}, a*) with m = n, fewer where the episode ends, and no bootstrap once it
terminated. a* maximizes the target network, or with `double` (arXiv:1509.06461) the online one; `dueling` is
arXiv:1511.06581. The target network is copied every `sync_every` updates, or follows by an exponential average where
`tau` is set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import torch
from annotated_types import Gt, Le
from gymnasium.spaces import Discrete
from tensordict import TensorDict
from torch import Tensor

from rlkit import losses, policies, returns
from rlkit.api import ActionValues, Env, Metrics, PolicyFactory
from rlkit.fields import EXPLORES, Choose, Count, Fraction, Limit, Needs, Positive, Search

from ._replay import OffPolicy, Replayed

FALLS, FROM = Needs("epsilon", unlike="epsilon_end"), Needs("epsilon_decay")
Held = Annotated[Count, Needs(EXPLORES)]
Copied = Annotated[Count, Needs("tau", None), Search(50, 5_000, log=True)]


@dataclass(frozen=True)
class Config(Replayed):
    lr: Positive = 1e-3  # learning rate
    max_grad_norm: Limit = 10.0  # gradients are scaled down to this global norm
    double: bool = True  # the online network chooses the next action, the target network values it
    dueling: bool = False  # the network is V(s) + A(s, a) − mean A
    sync_every: Copied = 500  # updates between copies into the target network
    tau: Annotated[float, Gt(0), Le(1)] | None = None  # soft updates, no sync_every: target += tau · (online − target)
    epsilon: Annotated[Fraction, FROM] = 1.0  # probability of a random action at the start
    epsilon_end: Annotated[Fraction, Choose(0.01, 0.05, 0.1)] = 0.05  # probability of a random action after the decay
    epsilon_decay: Annotated[Fraction, FALLS, Search(0.05, 0.5)] = 0.2  # fraction of the run over which epsilon falls
    hold: Held = 1  # maximum number of steps a random action is repeated: n steps with probability 1 / (n (n + 1))


class DQN(OffPolicy):
    saved = (*OffPolicy.saved, "explorer")
    config: Config
    policy: ActionValues

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        super().__init__(config, env)
        self.policy = network.q_network(env, config.dueling)
        actions = int(cast(Discrete, env.action_space).n)
        self.explorer = policies.Persistent(self.policy, env.rows, config.hold, actions) if config.hold > 1 else None
        self.target = self.policy.frozen()
        self.optimizer = policies.adam(self.policy, config)

    @property
    def target_copied(self) -> bool:
        """Whether the target network has followed the online one at all; read by the doctor."""
        return self.updates >= (self.config.sync_every if self.config.tau is None else 1)

    def rollout(self, env: Env) -> TensorDict:
        c = self.config
        self.policy.epsilon = policies.epsilon(c.epsilon, c.epsilon_end, c.epsilon_decay, self.progress)
        self.anneal()
        return env.rollout(self.explorer or self.policy, steps=c.steps)  # [B, steps]

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        q = policies.pick(self.policy(batch["observation"]), batch["action"])
        with torch.no_grad():
            ahead = self.target(batch["next_observation"])
            best = (self.policy(batch["next_observation"]) if self.config.double else ahead).argmax(-1)
            next_value = policies.pick(ahead, best)
            target = returns.td_target(batch["reward"], next_value, batch["terminated"], batch["discount"])
            error = (target - q).abs()
        return losses.weighted(losses.huber(q, target), batch["weight"]), {"q": q, "td_error": error}

    def after_step(self, learned: Sequence[tuple[TensorDict, dict[str, Tensor]]]) -> None:
        """Set the priorities of the replayed steps, and move the target network."""
        super().after_step(learned)
        tau = self.config.tau or float(self.updates % self.config.sync_every == 0)
        if tau:
            policies.follow(list(self.target.parameters()), list(self.policy.parameters()), tau)


make = DQN
