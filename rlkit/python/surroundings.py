"""Protects the caller's torch settings from a run, and a run from the caller's settings."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch


@contextmanager
def usual() -> Iterator[None]:
    """Torch's default settings: float32, gradients, tensors on the CPU; the caller's are restored afterwards."""
    dtype, here = torch.get_default_dtype(), torch.device("cpu")
    torch.set_default_dtype(torch.float32)
    # Setting even the default device makes every call of torch slower.
    place = nullcontext() if torch.get_default_device() == here else here
    try:
        with torch.inference_mode(False), torch.enable_grad(), place:
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Torch's defaults; threads and global random states are restored, whatever a plug-in or environment did."""
    on_gpu_by_now: Callable[[], bool] = torch.cuda.is_initialized  # reading the GPU's random states would initialize it
    threads, cuda = torch.get_num_threads(), on_gpu_by_now()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    on_gpu = torch.cuda.get_rng_state_all() if cuda else []
    try:
        with usual():
            yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(on_gpu)
