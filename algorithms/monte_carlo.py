"""Monte-Carlo prediction: V[s] is the mean of the returns that followed s.

V[s] += step·(G − V[s]) with G = Σ_k γ^k·r_{t+k} to the end of the episode and step 1/N(s) (the sample mean), or a
constant `lr`. Where an episode is cut short, V of the state that it was cut in stands for the rest.
Sutton & Barto 2018, section 5.1.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import returns
from rlkit.api import Env, PolicyFactory
from rlkit.fields import Fraction, Positive

from .td import Prediction


@dataclass(frozen=True)
class Config:
    visits: Literal["first", "every"] = "first"  # visits to a state in an episode that count
    lr: Positive | None = None  # constant step size; none: 1/N(s), the mean of all returns so far
    gamma: Fraction = 0.99  # discount per step
    epsilon: Fraction = 1.0  # exploration rate of the policy being evaluated; otherwise it acts optimally
    initial: float = 0.0  # V of every state at the start


def first_visits(state: Tensor, mask: Tensor, states: int) -> Tensor:
    """True where a row is in this state for the first time. [B, T]: rows are episodes; → [B, T] bool."""
    rows, time = state.shape
    t = torch.where(mask, torch.arange(time, device=state.device), time)
    earliest = torch.full((rows, states), time, device=state.device).scatter_reduce(1, state, t, "amin")
    return mask & (earliest.gather(1, state) == t)


class MonteCarlo(Prediction):
    name = "monte_carlo"
    config: Config

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        self.config = config
        super().__init__(env, config.epsilon, config.gamma, config.initial, config.lr or 1.0)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy)  # [B, T]: whole episodes

    def credit(self, rollout: TensorDict) -> TensorDict:
        state, gamma = rollout["observation"], self.config.gamma
        cut = rollout["done"] & ~rollout["terminated"]
        reward = rollout["reward"].double() + gamma * (cut * self.policy(rollout["next_observation"]))
        steps = rollout.copy().set("return", returns.reward_to_go(reward, rollout["done"], gamma))
        if self.config.visits == "first":
            steps["mask"] = first_visits(state, rollout["mask"], len(self.policy.visits))
        self.policy.visits += state[steps["mask"]].bincount(minlength=len(self.policy.visits))
        return steps

    def share(self, state: Tensor) -> Tensor:
        """1/N(s) with this batch counted, or the shared step of `Prediction`."""
        return 1 / self.policy.visits[state].double() if self.config.lr is None else super().share(state)


make = MonteCarlo
