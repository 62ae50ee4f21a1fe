"""Temporal-difference prediction on a table of V: TD(0), n-step TD and TD(λ).

V[s] += α·(G − V[s]), with G = r + γ·V(s') for TD(0), the n-step return for n > 1, the λ-return within a rollout of
`steps` steps for λ > 0. The evaluated policy never changes. Sutton 1988, doi:10.1007/BF00115009.
"""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn.functional import one_hot

from rlkit import buffers, exact, losses, policies, returns
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory
from rlkit.errors import UserError
from rlkit.fields import Count, Fraction


@dataclass(frozen=True)
class Config(policies.StepSize):
    epsilon: Fraction = 1.0  # exploration rate of the policy being evaluated; otherwise it acts optimally
    n: Count = 1  # rewards summed before the bootstrap
    lam: Fraction = 0.0  # λ: weight of longer returns; 0 is TD(0), 1 the whole rollout
    steps: Count | None = None  # environment steps per row and update; none: 1, or 16 to look ahead in where λ is set
    initial: float = 0.0  # V of every state at the start


def judged(env: Env, name: str, epsilon: float, gamma: float) -> Tensor:
    """π(a|s) [S, A]: random with probability ε, otherwise optimal. ε < 1 needs the environment's model."""
    states, actions = policies.sizes(env, name)
    if epsilon == 1:
        return with_values(env, torch.full((states, actions), 1 / actions, dtype=torch.float64), epsilon, gamma)
    model = policies.known_model(env, f"{name} with algo.epsilon={epsilon:g}", "algo.epsilon=1")
    try:
        q = exact.q_values(model, exact.optimal_values(model, gamma), gamma)
    except ValueError as error:
        raise UserError(f"algo.epsilon={epsilon:g} asks for the optimal policy: {error}") from error
    if gamma == 1:
        q = one_hot(exact.ending_actions(model, q), actions).double()
    return with_values(env, exact.epsilon_greedy(q, epsilon), epsilon, gamma)


def with_values(env: Env, probabilities: Tensor, epsilon: float, gamma: float) -> Tensor:
    """The policy. Raises: UserError where its values are infinite, which only γ = 1 and a known model show."""
    if gamma == 1 and (model := env.model()) is not None:
        try:
            exact.policy_values(model, probabilities, gamma)
        except ValueError as error:
            raise UserError(f"algo.epsilon={epsilon:g} asks for a policy without values: {error}") from error
    return probabilities


class Prediction(Algorithm):
    """Shared by TD and Monte Carlo: a table of V, the policy that it evaluates, and the step towards a return."""

    name: str
    policy: policies.ValueTable

    def __init__(self, env: Env, epsilon: float, gamma: float, initial: float, lr: float) -> None:
        probabilities = judged(env, self.name, epsilon, gamma)
        self.policy = policies.ValueTable(probabilities, env.seed, initial).to(env.device)
        self.buffer = buffers.Rollout(env.seed, whole_rows=False)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=lr)

    def share(self, state: Tensor) -> Tensor:
        """The weight of each visit: 1 / number of visits to the same state in the batch. [N] → [N]."""
        return 1 / policies.meetings(state).double()

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        value: Tensor = self.policy(batch["observation"])
        target = batch["return"]
        each = losses.squared_error(value, target) * self.share(batch["observation"])
        return each.sum(), {"value": value, "td_error": (target - value).abs()}


class TD(Prediction):
    name = "td"
    saved = (*Algorithm.saved, "window")
    config: Config

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        self.config = config
        if config.n > 1 and config.lam > 0:
            raise UserError(f"td: algo.n={config.n} and algo.lam={config.lam:g} are two ways to look ahead; give one")
        self.steps = config.steps or (16 if config.lam > 0 else 1)
        if config.lam > 0 and self.steps == 1:
            raise UserError(
                f"td: algo.lam={config.lam:g} looks ahead within each rollout, of algo.steps=1; give algo.steps=16"
            )
        policies.check_reach(env, "algo.n", config.n)
        policies.check_rollout(env, "algo.steps", self.steps, self.steps)
        self.window = buffers.Window(config.n - 1)
        super().__init__(env, config.epsilon, config.gamma, config.initial, config.lr)

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


make = TD
