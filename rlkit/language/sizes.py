"""The sizes of weights in files, compared with the model's before any of them is read."""

import math
from collections.abc import Iterable
from pathlib import Path

import torch

from rlkit import memory, ranks
from rlkit.api import UserError
from rlkit.language.decoder import Decoder
from rlkit.language.shape import Shape
from rlkit.terminal import warn

Sizes = dict[str, list[int]]  # tensor name → sizes


def check_sizes(shape: Shape, folder: Path, files: dict[Path, Sizes]) -> set[str]:
    """Refuse weights that do not fit config.json, and a model that does not fit into memory.

    folder: folder or file, for messages. Returns: the names of weights in the files that the model does not have.
    """
    there = {name for sizes in files.values() for name in sizes}
    if shape.layers > len(there):  # a layer has several weights; building so many layers would take long
        raise UserError(
            f"{folder}: config.json means {shape.layers} layers and there are {len(there)} weights in all: "
            "config and weights are of different models"
        )
    with torch.device("meta"):  # sizes only, without memory
        waiting = {name: list(parameter.shape) for name, parameter in Decoder(shape).named_parameters()}
    count, more = sum(map(math.prod, waiting.values())), there - waiting.keys()
    for file, sizes in files.items():
        for name in sorted(sizes.keys() & waiting.keys()):
            wanted = waiting.pop(name)
            if sizes[name] != wanted:
                raise UserError(
                    f"{file}: {name} is {sizes[name]}, but config.json means {wanted}; "
                    "config and weights are of different models"
                )
    if waiting:
        raise UserError(f"{folder}: {len(waiting)} weights are missing, such as {min(waiting)}: copy it again")
    memory.check(4 * count, f"{folder}: a model of {count:,} parameters", "take a smaller one")
    return more


def tell_unused(folder: Path, names: Iterable[str]) -> None:
    """Say in one line which weights the model of config.json does not have, but for the rotary tables of old files."""
    unused = sorted(name for name in names if not name.endswith("rotary_emb.inv_freq"))
    if unused and ranks.first():
        warn(
            f"{folder}: the model that config.json describes has no {unused[0][:80]} (weights left out: {len(unused)})"
        )
