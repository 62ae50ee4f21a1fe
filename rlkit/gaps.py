"""Rows with gaps: steps of the environment or a tool between two turns of the policy, not chosen by it.

Credit flows over the acted steps only: neither γ nor λ counts the steps of a gap. A reward in a gap, and the end of an
episode in a gap, belong to the acted step before it.
"""

import torch
from torch import Tensor

from rlkit.shapes import same_shape


def gapped(mask: Tensor, done: Tensor) -> bool:
    """Whether an episode goes on after an acted step with one that is not acted. mask, done: [..., T] bool."""
    same_shape(mask=mask, done=done)
    if bool(mask.all()):
        return False
    return bool((mask[..., :-1] & ~done[..., :-1] & ~mask[..., 1:]).any())


class Acted:
    """The acted steps of each row, moved to its front in order; the rest of the row is 0 or False.

    mask, done: [..., T] bool; a row may have any number of acted steps. x of the methods: [..., T].
    """

    def __init__(self, mask: Tensor, done: Tensor) -> None:
        self.mask = mask
        self.order = (~mask).int().argsort(dim=-1, stable=True)  # original position of each acted step
        self.there = self.order.new_ones(mask.shape).cumsum(-1) <= mask.sum(-1, keepdim=True)
        place = mask.cumsum(-1) - 1  # index of the acted step that each step belongs to; -1 before the first
        self.place = place.clamp(min=0)
        ended = done.cumsum(-1) - done.long()  # number of episodes that ended before each step
        same = ended == ended.gather(-1, self.order.gather(-1, self.place))
        self.counted = same & (place >= 0)  # steps after the end of an episode belong to no acted step

    def at(self, x: Tensor) -> Tensor:
        """x at the acted steps."""
        return torch.where(self.there, x.gather(-1, self.order), 0)

    def total(self, x: Tensor) -> Tensor:
        """The sum of x over each acted step and the gap after it."""
        return torch.zeros_like(x).scatter_add(-1, self.place, torch.where(self.counted, x, 0))

    def any(self, x: Tensor) -> Tensor:
        """Whether x (bool) is True at an acted step or in the gap after it."""
        return self.total(x.long()) > 0

    def back(self, x: Tensor) -> Tensor:
        """Results for acted steps, moved back to their original positions; 0 elsewhere."""
        return torch.where(self.mask, x.gather(-1, self.place), 0)


def following(value: Tensor, mask: Tensor) -> Tensor:
    """V of the next acted step after each step, 0 where there is none. value, mask: [..., T] → [..., T]."""
    same_shape(value=value, mask=mask)
    end = mask.shape[-1]
    index = torch.where(mask, torch.arange(end, device=mask.device), end)  # end: no step
    upcoming = torch.nn.functional.pad(index.flip(-1).cummin(-1).values.flip(-1)[..., 1:], (0, 1), value=end)
    return torch.nn.functional.pad(value, (0, 1)).gather(-1, upcoming)
