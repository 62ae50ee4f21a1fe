"""A decoder whose parameters, gradients and optimizer state are sharded over the ranks with torch's FSDP2.

Each block is gathered for its computation and freed again, forward and backward; gradients are reduced into shards. So
ranks must compute the same number of passes (`buffers.in_step`). The engine has a whole copy of its own.
"""

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from rlkit import ranks, shards
from rlkit.errors import UserError
from rlkit.language.decoder import Decoder
from rlkit.language.linear import Linear
from rlkit.language.shape import Shape

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Shard = Literal["auto", "none", "full"]
KEPT = 16  # bytes per trained weight: weight, gradient and two moments of Adam, in float32


def is_asked(asked: Shard, shape: Shape | None, learns: bool, device: torch.device) -> bool:
    """Whether to shard a model; shape: of a native model; learns: whether its weights are trained, not only adapters.

    auto: if ranks have GPUs, and one copy of the trained weights needs more than half of a GPU's memory. One process
    shards nothing: so a run of several ranks can be evaluated and resumed by one process.

    Raises: UserError where sharding was asked for and is impossible.
    """
    if asked == "none" or ranks.size() == 1:
        return False
    if asked == "full" and shape is None:
        raise UserError(
            "policy.shard=full is for models that are native, and this one is computed by transformers: leave it out"
        )
    if asked == "full" or shape is None or device.type != "cuda":
        return asked == "full"
    with torch.device("meta"):
        count = sum(p.numel() for p in Decoder(shape).parameters())
    large = is_large(count, learns, torch.cuda.get_device_properties(device).total_memory)
    return bool(ranks.most(large)[0])  # GPUs may differ in size


def is_large(count: int, learns: bool, memory: float) -> bool:
    """Whether so many weights need more than half of a GPU's memory in bytes; see `is_asked`."""
    return (KEPT if learns else 4) * count > memory // 2


def share_out(decoder: Decoder, device: torch.device) -> None:
    """Shard a decoder that has no weights yet; each weight is then a `part` of a whole one."""
    for block in decoder.model.layers:
        _share(block, device)
    _share(decoder, device)
    ranks.share_layers()


def share_head(head: nn.Linear) -> None:
    """The same for a head beside a decoder; the head has its weights already."""
    _share(head, head.weight.device)
    settle(head)


def _share(module: nn.Module, device: torch.device) -> None:
    from torch.distributed.fsdp import fully_shard

    part = fully_shard(module, mesh=_mesh(device.type), reshard_after_forward=True)
    part.set_gradient_divide_factor(1.0)  # sum, not mean: the loss weights were normalized over all ranks before
    part.set_force_sum_reduction_for_comms(True)  # gloo supports only sums


@lru_cache(maxsize=2)
def _mesh(kind: str) -> "DeviceMesh":
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(kind, (ranks.size(),))


def part(weight: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """This rank's shard of a weight."""
    return shards.cut(weight, _mesh(device.type), device, dtype)


def adopt(decoder: Decoder, parts: Mapping[str, Tensor]) -> None:
    """Set all weights to these shards."""
    decoder.load_state_dict(parts, assign=True)
    settle(*decoder.model.layers, decoder)


def settle(*modules: nn.Module) -> None:
    """Let FSDP2 install its hooks now: the structure of a module must not change once a run began."""
    from torch.distributed.fsdp import FSDPModule

    for module in modules:
        assert isinstance(module, FSDPModule)
        module.unshard()
        module.reshard()


def twin(decoder: Decoder) -> Decoder:
    """A frozen, sharded copy of a decoder; weights that are not trained share memory."""
    with torch.device("meta"):
        frozen = Decoder(decoder.shape, decoder.dtype).requires_grad_(False)
    share_out(frozen, decoder.head.device)
    frozen.frequencies, frozen.checkpointing = decoder.frequencies, decoder.checkpointing
    own = {name: p for name, p in decoder.named_parameters() if ".adapter." not in name}
    same = {name: p.detach().clone() if p.requires_grad else p.detach() for name, p in own.items()}
    adopt(frozen, same)
    for name, linear in decoder.adapted():
        assert linear.adapter is not None
        place = frozen.get_submodule(name)
        assert isinstance(place, Linear)
        place.adapter = copy.deepcopy(linear.adapter).requires_grad_(False)
    return frozen
