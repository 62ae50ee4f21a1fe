"""Named random generators, derived from the run's seed. The global ones are for plug-ins and libraries alone."""

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from rlkit import ranks
from rlkit.attributes import put_back, state_of


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


def seed_global(seed: int, *names: str | int) -> None:
    """Seed the global generators of torch (of GPUs, too), NumPy and Python, from which plug-ins and libraries draw."""
    number = derive(seed, "global", *names)
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


def global_generators() -> dict[str, object]:
    """The global generators, by the name under which a checkpoint has their states."""
    found: dict[str, object] = {"global.torch": torch.default_generator}
    found |= {"global.numpy": np.random.mtrand._rand, "global.random": random._inst}
    on_gpu_by_now: Callable[[], bool] = torch.cuda.is_initialized  # to ask for its generator would initialize it
    if on_gpu_by_now():
        found["global.cuda"] = torch.cuda.default_generators[torch.cuda.current_device()]
    return found


@contextmanager
def drawn_apart(seed: int, *names: str | int) -> Iterator[None]:
    """Draw from global generators by this seed and these names; afterwards they are as before.

    Each rank draws other numbers, for it measures a part of the episodes.
    """
    drawn = global_generators()
    states = {key: state_of(x) for key, x in drawn.items()}
    seed_global(seed, *names, *([ranks.rank()] if ranks.rank() else []))
    try:
        yield
    finally:
        for key, state in states.items():
            put_back(drawn, key, state)
