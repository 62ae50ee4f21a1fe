"""Which of several groups of attempts there is something to learn from, and how far a call has come."""

import time
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.buffers import per_step


def spreads(rows: TensorDict, size: int) -> Tensor:
    """How far the attempts at each prompt differ: the standard deviation of their scores, [N / size].

    Without scores it is that of their advantages. Of single attempts it is the size of the mean advantage.
    """
    mask = rows["mask"]
    known = "advantage" in rows.keys()
    advantage = per_step(rows["advantage"], mask) if known else torch.zeros_like(mask, dtype=torch.float32)
    mean = (advantage * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    if size == 1:
        return torch.abs(mean)
    judged: Tensor = rows["score"] if "score" in rows.keys() else mean
    return torch.std(judged.float().view(-1, size), -1, correction=0)


def informative(rows: TensorDict, size: int) -> list[int]:
    """The groups that differ, the largest spread first; of equal ones the first."""
    found = spreads(rows, size).nan_to_num()
    order = found.argsort(descending=True, stable=True).tolist()
    return [group for group in order if float(found[group]) > 1e-6]


@dataclass
class Doing:
    """What a call that takes long is at: the page asks for it meanwhile."""

    steps: tuple[str, ...] = ()
    at: int = 0
    began: float = 0.0

    def begin(self, *steps: str) -> None:
        self.steps, self.at, self.began = steps, 0, time.monotonic()

    def next(self) -> None:
        self.at += 1

    def told(self) -> dict[str, object]:
        if not self.steps:
            return {"doing": "", "at": 0, "steps": 0, "seconds": 0.0}
        doing = self.steps[min(self.at, len(self.steps) - 1)]
        return {
            "doing": doing,
            "at": self.at,
            "steps": len(self.steps),
            "seconds": time.monotonic() - self.began,
        }
