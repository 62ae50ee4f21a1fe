"""Safetensors files written tensor by tensor, so that no rank holds more than one whole tensor of a sharded model.

The format is that of https://github.com/huggingface/safetensors, and its library can read the files.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from rlkit import ranks, shards

KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}
UNSEALED = "0" * 64  # placeholder in the header until the checksum is known

Size = tuple[str, torch.dtype, torch.Size]  # the name, type and shape of a tensor


def order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names in the order of a file: the widest types first, so that all tensors are aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def sizes(tensors: Mapping[str, Tensor]) -> list[Size]:
    """Names, types and shapes in the order of a file."""
    return [(name, tensors[name].dtype, tensors[name].shape) for name in order(tensors)]


def wholes(tensors: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """Each tensor whole, on the CPU, in the order of a file, for the first rank; all ranks must iterate to the end."""
    for name in order(tensors):
        x = tensors[name].detach()
        if ranks.first() or shards.is_shard(x):
            yield shards.whole(x).cpu()


def write(path: Path, listed: Sequence[Size], tensors: Iterable[Tensor], metadata: Mapping[str, str]) -> None:
    """Write a new file, one tensor after the other."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in listed:
        start, end = end, end + dtype.itemsize * shape.numel()
        header[name] = {"dtype": KINDS[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, x in zip(listed, tensors, strict=True):
            file.write(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def seal(path: Path, checksum: str) -> None:
    """Replace UNSEALED by the checksum."""
    with path.open("r+b") as file:
        text = file.read(8 + int.from_bytes(file.read(8), "little"))
        place = text.index(f'"checksum":"{UNSEALED}"'.encode()) + len('"checksum":"')
        file.seek(8 + place, os.SEEK_SET)
        file.write(checksum.encode())
