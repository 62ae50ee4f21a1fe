"""What a call leaves as it was: torch's threads and the global random states of whoever calls."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put threads and global random states back afterwards, whatever a plug-in or an environment did to them."""
    on_gpu_by_now: Callable[[], bool] = torch.cuda.is_initialized  # to look at its states would start the GPU
    threads, cuda = torch.get_num_threads(), on_gpu_by_now()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    on_gpu = torch.cuda.get_rng_state_all() if cuda else []
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(on_gpu)
