"""The sizes of weights against those that a model means, before any of them is read."""

import math
from pathlib import Path

import torch

from rlkit import memory
from rlkit.api import UserError
from rlkit.language.decoder import Decoder
from rlkit.language.shape import Shape

Sizes = dict[str, list[int]]  # of tensors, by name


def check_sizes(shape: Shape, folder: Path, files: dict[Path, Sizes]) -> set[str]:
    """Refuse weights that are not those which config.json means, and what does not fit into memory.

    folder: or file, for the lines. Returns: the names of those that the model has not.
    """
    there = {name for sizes in files.values() for name in sizes}
    if shape.layers > len(there):  # a layer has several weights; so many would take their time to make
        raise UserError(
            f"{folder}: config.json means {shape.layers} layers and there are {len(there)} weights in all: "
            "config and weights are of different models"
        )
    with torch.device("meta"):  # sizes and no memory
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
