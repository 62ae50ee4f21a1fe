"""Q-learning (Watkins 1989; Sutton & Barto 2018, section 6.5): the TD target on a table.

Q[s, a] += α·(r + γ·max_b Q[s', b] − Q[s, a]), which is one step of plain SGD at rate α on ½δ².
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, losses, policies, returns
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory
from rlkit.fields import Count, Fraction, Needs

FALLS, FROM = Needs("epsilon", unlike="epsilon_end"), Needs("epsilon_decay")


@dataclass(frozen=True)
class Config(policies.StepSize):
    epsilon: Annotated[Fraction, FROM] = 1.0  # probability of a random action at the start
    epsilon_end: Fraction = 0.05  # probability of a random action after the decay
    epsilon_decay: Annotated[Fraction, FALLS] = 0.5  # fraction of the run over which epsilon falls
    steps: Count = 1  # environment steps per row and update
    initial: float = 0.0  # Q of every pair at the start; optimistic values explore


class QLearning(Algorithm):
    name = "q_learning"
    saved = (*Algorithm.saved, "policy.epsilon")
    config: Config
    policy: policies.Table

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        states, actions = policies.sizes(env, self.name, masks=True)
        policies.check_rollout(env, "algo.steps", config.steps, config.steps)
        self.config = config
        table = policies.Table(states, actions, env.seed, config.initial)
        self.policy = table.masked(env.observation_space).to(env.device)
        self.buffer = buffers.Rollout(env.seed, whole_rows=False)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=config.lr)

    def rollout(self, env: Env) -> TensorDict:
        c = self.config
        self.policy.epsilon = policies.epsilon(c.epsilon, c.epsilon_end, c.epsilon_decay, self.progress)
        return env.rollout(self.policy, steps=c.steps)  # [B, steps]

    def next_value(self, q: Tensor) -> Tensor:
        """The value of s' that this method bootstraps from: Q(s', ·) [..., A] → [...]."""
        return q.amax(-1)

    def credit(self, rollout: TensorDict) -> TensorDict:
        after = self.next_value(self.policy(rollout["next_observation"]))
        target = returns.td_target(rollout["reward"], after, rollout["terminated"], self.config.gamma)
        return rollout.set("return", target)

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        table = self.policy(batch["observation"])
        q = policies.pick(table, batch["action"])
        # Every entry moves by α·δ, however many rows are played at once; rows that meet at one entry share its step.
        entry = self.policy.state(batch["observation"]) * table.shape[-1] + batch["action"]
        each = losses.squared_error(q, batch["return"]) / policies.meetings(entry)
        return each.sum(), {"q": q, "td_error": (batch["return"] - q).abs()}


make = QLearning
