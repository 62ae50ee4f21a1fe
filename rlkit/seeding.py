"""Named random generators, derived from the run's seed; the global generators are never used."""

import hashlib

import numpy as np
import torch


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed: a pure function of the run's seed and the names, e.g. `derive(0, "reset", row, episode)`.

    Renaming a generator changes its draws for every seed.
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *names: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator for one purpose, e.g. `generator(seed, "action")`."""
    return torch.Generator(device=device).manual_seed(derive(seed, *names))


def generators(owner: object) -> dict[str, torch.Generator]:
    """The generators that an object holds, by attribute name."""
    return {name: x for name, x in vars(owner).items() if isinstance(x, torch.Generator)}


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """A numpy generator for one purpose."""
    return np.random.default_rng(derive(seed, *names))
