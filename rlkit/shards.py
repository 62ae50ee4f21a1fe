"""Sharded tensors: parameters that FSDP2 shards, and their optimizer state.

Other code sees them either as a whole, which all ranks must request together, or as this rank's part.
"""

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rlkit import ranks
from rlkit.errors import UserError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

PIECE = 2**18  # numbers that are read at once, as a large tensor has no room for a copy


def is_shard(x: object) -> "TypeGuard[DTensor]":
    """Whether the tensor is sharded over ranks."""
    if ranks.size() == 1:
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(x, DTensor)


def whole(x: Tensor) -> Tensor:
    """The whole tensor, on every rank. Its gradient is summed over the ranks and returned to the shards."""
    if not is_shard(x):
        return x
    from torch.distributed.tensor import Partial

    return x.full_tensor(grad_placements=[Partial()])


def mine(x: Tensor) -> Tensor:
    """This rank's part, which shares its memory; the tensor itself if it is not sharded."""
    return cast("DTensor", x.detach()).to_local() if is_shard(x) else x


def cut(x: Tensor, mesh: "DeviceMesh", device: torch.device, dtype: torch.dtype) -> Tensor:
    """Shard a tensor that every rank has: each keeps a block of consecutive rows."""
    from torch.distributed.tensor import DTensor, Shard

    rows = -(-len(x) // ranks.size())
    start = min(len(x), rows * ranks.rank())
    part = torch.empty_like(x[start : start + rows], device=device, dtype=dtype).copy_(x[start : start + rows])
    size, stride = x.shape, torch.empty(x.shape, device="meta").stride()
    return DTensor.from_local(part, mesh, [Shard(0)], run_check=False, shape=size, stride=stride)


def alike(x: Tensor, model: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A whole tensor, sharded like `model` if that is sharded: on its device, in its precision unless `dtype` is given.

    Raises: ValueError where its shape is another.
    """
    if not is_shard(model) or is_shard(x):
        return x
    if x.shape != model.shape:
        raise ValueError(f"the shape is {tuple(x.shape)}, not {tuple(model.shape)}")
    return cut(x, model.device_mesh, model.device, dtype or model.dtype)


def fill(x: Tensor, values: Tensor) -> None:
    """Set a tensor, or this rank's part of it, from the whole values."""
    with torch.no_grad():
        mine(x).copy_(mine(alike(values, x)))


def undo_sums(parameters: Iterable[Tensor]) -> None:
    """Make the gradients of shards those of one rank, where each has learned from whole minibatches.

    FSDP2 adds up what all ranks have.
    """
    for p in parameters:
        if is_shard(p) and p.grad is not None:
            mine(p.grad).div_(ranks.size())


def not_shared(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors that are not sharded."""
    return [x for x in tensors if not is_shard(x)]


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All parameters of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def any_in(found: Iterable[object]) -> bool:
    """Whether any of these is sharded."""
    return any(map(is_shard, found))


def agreed(flags: list[bool], shared: bool) -> list[bool]:
    """For each flag whether it is set on any rank, if tensors are sharded; then all ranks must call this."""
    return [bool(x) for x in ranks.most(*flags)] if shared and flags else flags


def check_agreed(kind: str, values: Iterable[tuple[str, object]]) -> None:
    """Refuse named values that differ between ranks by more than rounding: only those of the first are saved.

    kind: the name of the class that holds them.
    """
    first, *others = ranks.everyones({name: _size(x) for name, x in values})
    for other in others:
        names = first.keys() ^ other.keys() or _apart(first, other)
        if names:
            raise UserError(
                f"{kind}.{min(names)} is not the same on all ranks, each of which plays and learns a part: change it "
                f"in credit or after_step; if loss alone changes it, you may write divides = False into {kind} instead"
            )


def _apart(one: dict[str, float], other: dict[str, float]) -> set[str]:
    """The names of numbers that differ by more than rounding."""
    a, b = (np.array([x[name] for name in one]) for x in (one, other))
    near = np.isclose(a, b, rtol=1e-3, atol=1e-6, equal_nan=True)
    return {name for name, same in zip(one, near, strict=True) if not same}


def _size(x: object) -> float:
    """A number that tells a tensor, an array, a number or a text from most others."""
    if isinstance(x, Tensor):
        if is_shard(x) or x.layout != torch.strided:
            return 0.0
        row = x.detach().reshape(-1)
        return sum(float(_floats(row[i : i + PIECE]).abs().sum(dtype=torch.float64)) for i in range(0, len(row), PIECE))
    if isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "biuf":
        flat = x.reshape(-1)
        return sum(float(np.abs(flat[i : i + PIECE].astype(np.float64)).sum()) for i in range(0, len(flat), PIECE))
    if isinstance(x, int):
        return float(x % 2**53)
    return x if isinstance(x, float) else float(zlib.crc32(str(x).encode())) if isinstance(x, str) else 0.0


def _floats(x: Tensor) -> Tensor:
    return x if x.is_floating_point() or x.is_complex() else x.double()


def parts_of(held: object, state: dict[str, Any]) -> dict[str, Any]:
    """The state_dict of a module or an optimizer with whole tensors, sharded where the module or optimizer is.

    Optimizer state with the shape of its parameter is sharded like the parameter.
    """
    if isinstance(held, nn.Module):
        there = dict(held.named_parameters(remove_duplicate=False))
        return {key: alike(x, there[key]) if key in there else x for key, x in state.items()}
    parameters = parameters_of(held) if isinstance(held, Optimizer) else []
    if not any_in(parameters):
        return state

    def shared(x: object, p: Tensor) -> object:
        return alike(x, p, x.dtype) if isinstance(x, Tensor) and x.shape == p.shape else x

    moments = {
        number: {key: shared(x, p) for key, x in kept.items()} if isinstance(kept, dict) else shared(kept, p)
        for number, kept in state["state"].items()
        if isinstance(number, int)
        for p in parameters[number : number + 1]
    }
    return {**state, "state": state["state"] | moments}
