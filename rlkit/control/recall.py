"""A policy with memory at play: what it remembers of the episode of each copy."""

from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from rlkit.api import Acts, Recalls, Remembers
from rlkit.control.vector import Copies


class Recall:
    """Acts in the copies of an environment, and remembers what it saw in each since its reset."""

    def __init__(self, policy: Remembers, copies: Copies, memory: Tensor | None) -> None:
        self.policy, self.copies = policy, copies
        self.memory = policy.start(copies.n) if memory is None else memory
        self.forget()
        self.first = self.memory.clone()  # before the next step

    def forget(self) -> None:
        """Begin anew where an episode does."""
        if self.copies.began.any():
            began = torch.from_numpy(self.copies.began).to(self.memory.device)
            self.memory = self.memory.masked_fill(began.unsqueeze(-1), 0.0)

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        self.forget()
        action, self.memory = self.policy.recall(observation, self.memory, greedy)
        return action

    def record(self, batch: object) -> dict[str, Tensor]:
        raise NotImplementedError("the policy itself records")


def at_play(policy: Acts, copies: Copies, memory: Tensor | None = None) -> Acts:
    """The policy as it plays these copies; `memory` is what it remembers of episodes in progress."""
    if _recalls(type(policy)) and not cast(Remembers, policy).memoryless:
        return Recall(cast(Remembers, policy), copies, memory)
    return policy


@lru_cache
def _recalls(kind: type) -> bool:
    """Whether policies of a class can remember: to ask it of each of them takes as long as a step."""
    return issubclass(kind, Recalls)
