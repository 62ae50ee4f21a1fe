"""Spaces of TorchRL: what a spec is as a space of Gymnasium, and what a tensor of it is there."""

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import Tensor
from torch.nn.functional import one_hot

from rlkit.errors import UserError
from rlkit.spaces import Array

if TYPE_CHECKING:
    from rlkit.api import AnySpace

Spec = Any  # one of torchrl.data, which takes seconds to import


def space(spec: Spec, where: str) -> "AnySpace":
    """The space of a spec; choices are numbers, also where TorchRL has them one-hot.

    Raises: UserError for a spec that has no such space. where: what it is of, for the message.
    """
    from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, MultiOneHot, OneHot, Unbounded

    if isinstance(spec, Composite):
        return Dict({key: space(inner, f"{where} at {key}") for key, inner in spec.items()})
    if isinstance(spec, MultiOneHot):
        return MultiDiscrete([box.n for box in spec.space])
    if isinstance(spec, MultiCategorical):
        return MultiDiscrete(spec.nvec.numpy())
    if isinstance(spec, Binary) or (spec.dtype is torch.bool and isinstance(spec, Bounded | Unbounded)):
        return MultiBinary(prod(spec.shape))  # the latter are masks of jumanji's
    if isinstance(spec, OneHot):  # with more dimensions, of several choices among as many values
        several = tuple(spec.shape[:-1])
        return MultiDiscrete(np.full(several, spec.space.n)) if several else Discrete(int(spec.space.n))
    if isinstance(spec, Categorical):
        count = int(spec.space.n)
        return Discrete(count) if prod(spec.shape) == 1 else MultiDiscrete(np.full(tuple(spec.shape), count))
    if isinstance(spec, Bounded | Unbounded):
        kind = torch.zeros((), dtype=spec.dtype).numpy().dtype
        if kind.kind == "f":
            low, high = (np.broadcast_to(x.float().numpy(), spec.shape) for x in (spec.space.low, spec.space.high))
            finite = isinstance(spec, Bounded)
            return Box(low if finite else -np.inf, high if finite else np.inf, tuple(spec.shape), np.float32)
        return Box(spec.space.low.numpy(), spec.space.high.numpy(), tuple(spec.shape), kind.type)
    raise UserError(
        f"{where} is a {type(spec).__name__} of shape {tuple(spec.shape)}, which no policy here takes: use another "
        "environment, or wrap it as a gymnasium.Env for env=gym"
    )


def seen(spec: Spec, space: "AnySpace", x: Any) -> Any:  # nested as the spec is
    """A tensor of a spec as its space has it."""
    from torchrl.data import MultiOneHot, OneHot

    if isinstance(space, Dict):
        return {key: seen(spec[key], inner, x[key]) for key, inner in space.spaces.items()}
    if isinstance(spec, MultiOneHot):
        return np.array([part.argmax(-1).item() for part in x.split([box.n for box in spec.space], -1)])
    if isinstance(spec, OneHot):
        x = x.long().argmax(-1)
    if isinstance(space, Discrete):
        return int(x)
    array: Array = x.cpu().numpy().reshape(space.shape).astype(space.dtype)
    return array


def given(spec: Spec, action: Any) -> Tensor:  # a number, or an array
    """The tensor of a spec that stands for an action of its space."""
    from torchrl.data import MultiOneHot, OneHot

    if isinstance(spec, MultiOneHot):
        return torch.cat([one_hot(torch.tensor(int(n)), box.n) for n, box in zip(action, spec.space, strict=True)])
    if isinstance(spec, OneHot):
        return one_hot(torch.as_tensor(action).long(), spec.space.n).to(spec.dtype)
    return torch.as_tensor(np.array(action), dtype=spec.dtype).reshape(spec.shape)
