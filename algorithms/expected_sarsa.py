"""Expected SARSA: SARSA's target, averaged over the actions that may be taken next.

Q[s, a] += α·(r + γ·Σ_b π(b|s')·Q(s', b) − Q[s, a]) with π the ε-greedy policy that acts: SARSA's target without
the variance of a drawn b. With ε = 0 it is Q-learning. van Seijen et al. 2009, doi:10.1109/ADPRL.2009.4927542.
"""

from torch import Tensor

from rlkit import exact

from .q_learning import Config, QLearning

__all__ = ["Config", "ExpectedSarsa", "make"]


class ExpectedSarsa(QLearning):
    name = "expected_sarsa"

    def next_value(self, q: Tensor) -> Tensor:
        """Σ_b π(b|s')·Q(s', b)."""
        return (exact.epsilon_greedy(q, self.policy.epsilon) * q).sum(-1)


make = ExpectedSarsa
