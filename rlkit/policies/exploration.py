"""Exploration: how ε falls, and random actions that are repeated for a while."""

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import ActionValues, State
from rlkit.policies.base import EpsilonGreedy, any_of
from rlkit.policies.distributions import pick
from rlkit.policies.encoders import FORBIDDEN


def epsilon(start: float, end: float, decay: float, progress: float) -> float:
    """ε falls linearly from start to end over the first `decay` of the run."""
    return end + (start - end) * max(0.0, 1 - progress / decay) if decay > 0 else end


class Persistent:
    """ε-greedy whose random actions last n steps with P(n) = 1/(n·(n + 1)), at most `longest`: P(n ≥ k) = 1/k.

    Temporally extended ε-greedy, Dabney et al. 2020, arXiv:2006.01782: the tail is heavy. ε is the chance that one
    begins at a step where none is under way; as in the paper's appendix B, it goes on over the end of an episode. Acts
    for `policy`, with its generator.
    """

    def __init__(self, policy: ActionValues, rows: int, longest: int, actions: int) -> None:
        self.policy, self.longest, self.actions = policy, longest, actions
        self.held = torch.zeros(rows, dtype=torch.long)  # the random action of each row ...
        self.left = torch.zeros(rows, dtype=torch.long)  # ... and for how many more steps it is played

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        q = self.policy(observation)
        if isinstance(self.policy, EpsilonGreedy) and self.policy.allowed is not None:
            self.policy.allowed.check(observation, (q.shape[-1],))
        draw = torch.rand(3, len(self.held), generator=self.policy.generator)
        begins = (self.left == 0) & (draw[0] < self.policy.epsilon)
        self.held = torch.where(begins, any_of(q.cpu(), draw[1]), self.held)
        self.left = torch.where(begins, (1 / (1 - draw[2])).clamp(max=self.longest).long(), self.left)
        held = self.held.to(q.device)
        goes_on = (self.left > 0).to(q.device) & (pick(q, held) > FORBIDDEN / 2)
        action = torch.where(goes_on, held, q.argmax(-1))
        self.left = (self.left - 1).clamp(min=0)
        return action

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        return self.policy.record(batch)

    def state_dict(self) -> State:
        return {"held": self.held, "left": self.left}

    def load_state_dict(self, state: State) -> None:
        held, left = state["held"], state["left"]
        if held.shape != self.held.shape or left.shape != self.left.shape:
            raise ValueError(f"actions are held for {list(held.shape)} rows, not {list(self.held.shape)}")
        if bool(((held < 0) | (held >= self.actions) | (left < 0) | (left > self.longest)).any()):
            raise ValueError(f"{held.tolist()} of {self.actions} actions are held for {left.tolist()} steps more")
        self.held, self.left = held, left
