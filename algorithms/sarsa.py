"""SARSA: Q-learning's target with the action that is really taken next.

Q[s, a] += α·(r + γ·Q(s', a') − Q[s, a]): the policy that acts is the one that is learned. a' is known one step later,
so the newest step of each row waits for the next rollout; it is drawn before the update that it serves, as in the book.
Rummery & Niranjan 1994; Sutton & Barto 2018, section 6.4.
"""

import torch
from tensordict import TensorDict

from rlkit import buffers, policies, returns
from rlkit.api import Env, PolicyFactory

from .expected_sarsa import Config, ExpectedSarsa

__all__ = ["Config", "Sarsa", "make"]


class Sarsa(ExpectedSarsa):
    name = "sarsa"
    saved = (*ExpectedSarsa.saved, "window")

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        super().__init__(config, env, network)
        self.window = buffers.Window(1)

    def credit(self, rollout: TensorDict) -> TensorDict:
        steps = self.window.join(rollout)  # [B, 1 + T]
        q = self.policy(steps["next_observation"])
        taken = policies.pick(q, steps["action"].roll(-1, 1))
        # No action follows s' where an episode was truncated: use the expected value under the policy instead.
        after = torch.where(steps["done"], self.next_value(q), taken)
        target = returns.td_target(steps["reward"], after, steps["terminated"], self.config.gamma)
        return self.window.ready(steps.set("return", target))


make = Sarsa
