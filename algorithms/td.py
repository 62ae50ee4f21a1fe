"""Temporal-difference prediction on a table of V: TD(0), n-step TD and TD(λ).

V[s] += α·(G − V[s]), with G = r + γ·V(s') for TD(0), the n-step return for n > 1, the λ-return within a rollout of
`steps` steps for λ > 0. The policy that is judged never changes. Sutton 1988, doi:10.1007/BF00115009.
"""

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, exact, losses, returns, tables
from rlkit.api import Count, Env, Fraction, UserError


@dataclass(frozen=True)
class Config(tables.StepSize):
    epsilon: Fraction = 1.0  # the policy that is judged acts at random with this probability, else optimally
    n: Count = 1  # rewards that are summed before V stands in for the rest
    lam: Fraction = 0.0  # λ: mixes the returns of all n; 0 is TD(0), 1 all of the rollout
    steps: Count | None = None  # environment steps per row and update; none: 1, or 16 to look ahead in where λ is set
    initial: float = 0.0  # V of every state at the start


def judged(env: Any, name: str, epsilon: float, gamma: float) -> Tensor:
    """π(a|s) [S, A]: at random with probability ε, otherwise optimal, which takes the environment's model to know."""
    states, actions = tables.sizes(env, name)
    if epsilon == 1:
        return torch.full((states, actions), 1 / actions, dtype=torch.float64)
    model = tables.known_model(env, f"{name} with algo.epsilon={epsilon:g}", "algo.epsilon=1")
    return exact.epsilon_greedy(exact.q_values(model, exact.optimal_values(model, gamma), gamma), epsilon)


class TD:
    name = "td"

    def __init__(self, config: Any, env: Any, network: Any) -> None:
        self.config, self.progress = config, 0.0
        self.prepare(config)
        probabilities = judged(env, self.name, config.epsilon, config.gamma)
        self.policy = tables.ValueTable(probabilities, env.seed, config.initial).to(env.device)
        self.buffer = buffers.Rollout(env.seed, whole_rows=False)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=config.lr or 1.0)

    def prepare(self, config: Any) -> None:
        """Refuse what cannot be, and make room for the steps that wait for their n-step return."""
        if config.n > 1 and config.lam > 0:
            raise UserError(f"td: algo.n={config.n} and algo.lam={config.lam:g} are two ways to look ahead; give one")
        self.steps = config.steps or (16 if config.lam > 0 else 1)
        if config.lam > 0 and self.steps == 1:
            raise UserError(
                f"td: algo.lam={config.lam:g} looks ahead within each rollout, of algo.steps=1; give algo.steps=16"
            )
        self.window = buffers.Window(config.n - 1)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, steps=self.steps)  # [B, steps]

    def credit(self, rollout: TensorDict) -> TensorDict:
        c, steps = self.config, self.window.join(rollout)  # [B, n − 1 + steps]
        reward, done, terminated = steps["reward"].double(), steps["done"], steps["terminated"]
        after = self.policy(steps["next_observation"])
        if c.n > 1:
            total, last, discount = returns.n_step(reward, done, c.gamma, c.n)
            target = total + discount * (after * ~terminated).gather(-1, last)
        else:
            value = self.policy(steps["observation"])
            target = returns.gae(reward, value, after, terminated, done, c.gamma, c.lam)[1]
        return self.window.ready(steps.set("return", target))

    def share(self, state: Tensor) -> Tensor:
        """The part of a step that each visit takes: visits to one state share it. [N] → [N]."""
        return 1 / tables.meetings(state).double()

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        value, target = self.policy(batch["observation"]), batch["return"]
        each = losses.squared_error(value, target) * self.share(batch["observation"])
        return each.sum(), {"value": value, "td_error": (target - value).abs()}


make = TD
