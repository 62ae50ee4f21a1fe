"""Tensors of which each rank holds a part: parameters that FSDP2 shards, and what an optimizer remembers of them.

Elsewhere they are looked at as a whole, for which all ranks have to ask, or by the part of this rank.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rlkit import ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def is_shard(x: object) -> "TypeGuard[DTensor]":
    """Whether other ranks hold other parts of it."""
    if ranks.size() == 1:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(x, DTensor)


def whole(x: Tensor) -> Tensor:
    """All of it, on every rank. A gradient goes back to the parts, summed over the ranks."""
    if not is_shard(x):
        return x
    from torch.distributed.tensor import Partial

    return x.full_tensor(grad_placements=[Partial()])


def mine(x: Tensor) -> Tensor:
    """The part of this rank, which shares its memory; all of what is not shared out."""
    return cast("DTensor", x.detach()).to_local() if is_shard(x) else x


def cut(x: Tensor, mesh: "DeviceMesh", device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor that every rank has, as one of which each keeps its part: rows that follow each other."""
    from torch.distributed.tensor import DTensor, Shard

    rows = -(-len(x) // ranks.size())
    start = min(len(x), rows * ranks.rank())
    part = torch.empty_like(x[start : start + rows], device=device, dtype=dtype).copy_(x[start : start + rows])
    size, stride = x.shape, torch.empty(x.shape, device="meta").stride()
    return DTensor.from_local(part, mesh, [Shard(0)], run_check=False, shape=size, stride=stride)


def alike(x: Tensor, model: Tensor) -> Tensor:
    """A whole tensor as a part, where `model` is one: on its device, in its precision."""
    if not is_shard(model) or is_shard(x):
        return x
    if x.shape != model.shape:
        raise ValueError(f"the shape is {tuple(x.shape)}, not {tuple(model.shape)}")
    return cut(x, model.device_mesh, model.device, model.dtype)


def fill(x: Tensor, values: Tensor) -> None:
    """Set a tensor, or the part that this rank has of it, from all values."""
    with torch.no_grad():
        mine(x).copy_(mine(alike(values, x)))


def not_shared(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Those of which every rank has all."""
    return [x for x in tensors if not is_shard(x)]


def any_in(found: Iterable[object]) -> bool:
    """Whether some of it is shared out."""
    return any(map(is_shard, found))


def agreed(flags: list[bool], shared: bool) -> list[bool]:
    """What some rank has found, where they looked at parts; then all must ask."""
    return [bool(x) for x in ranks.most(*flags)] if shared and flags else flags


def parts_of(held: object, state: dict[str, Any]) -> dict[str, Any]:
    """The state_dict of a module or an optimizer with whole tensors, as one that it takes where ranks share it out.

    What an optimizer remembers of a parameter, and has its shape, is shared out as the parameter is.
    """
    if isinstance(held, nn.Module):
        there = dict(held.named_parameters(remove_duplicate=False))
        return {key: alike(x, there[key]) if key in there else x for key, x in state.items()}
    parameters = [p for group in held.param_groups for p in group["params"]] if isinstance(held, Optimizer) else []
    if not any_in(parameters):
        return state
    moments = {
        number: {key: alike(x, p) if isinstance(x, Tensor) and x.shape == p.shape else x for key, x in kept.items()}
        for number, kept in state["state"].items()
        for p in parameters[number : number + 1]
    }
    return {**state, "state": moments}
