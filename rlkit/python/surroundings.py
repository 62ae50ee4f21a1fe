"""Protects the caller's torch settings from a run, and a run from the caller's settings."""

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from rlkit.errors import UserError

_all: Any = torch.backends  # torch's stubs lack these; what is set for all holds where a kind has none of its own
PRODUCTS = _all, _all.mkldnn.matmul, _all.mkldnn.conv, _all.mkldnn.rnn, _all.cuda.matmul
_cuda = torch.backends.cuda  # the CPU reads the choice of a kernel for attention here, too
ATTENTION: tuple[tuple[Callable[[], bool], Callable[[bool], None]], ...] = (
    (_cuda.flash_sdp_enabled, _cuda.enable_flash_sdp),
    (_cuda.mem_efficient_sdp_enabled, _cuda.enable_mem_efficient_sdp),
    (_cuda.math_sdp_enabled, _cuda.enable_math_sdp),
    (_cuda.cudnn_sdp_enabled, _cuda.enable_cudnn_sdp),
)
_training: dict[int, int] = {}  # by process, as a fork copies this, the thread that trains


class Turns:
    """Lets one thread at a time use what several share. A copy, and a forked process, begin with nobody's turn."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    def __enter__(self) -> None:
        if self._process != os.getpid():  # the thread whose turn it was is not in this process
            self._lock, self._process = threading.RLock(), os.getpid()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["Turns"], tuple[()]]:
        return Turns, ()


@contextmanager
def alone() -> Iterator[None]:
    """Train in one thread at a time: the global random generators are of the whole program.

    Raises: UserError while another thread trains.
    """
    process, thread = os.getpid(), threading.get_ident()
    first = process not in _training
    if _training.setdefault(process, thread) != thread:
        raise UserError(
            "another thread of this program is training, and both would draw from the same random generators: wait for "
            "it, or give each run a process of its own, as rlkit.run_comparison does"
        )
    try:
        yield
    finally:
        if first:
            _training.pop(process, None)


@contextmanager
def usual() -> Iterator[None]:
    """Torch's default settings: whole float32, gradients, tensors on the CPU; the caller's are restored afterwards."""
    dtype, here = torch.get_default_dtype(), torch.device("cpu")
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
            # Setting even the default device makes every call of torch slower.
            if torch.get_default_device() != here:
                stack.enter_context(here)
            for kind in ("cpu", "cuda", "mps"):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            # Of each kind of device, as torch.get_float32_matmul_precision() raises where they differ.
            for products in PRODUCTS:
                if (precision := products.fp32_precision) not in ("none", "ieee"):
                    stack.callback(setattr, products, "fp32_precision", precision)
                    products.fp32_precision = "none" if products is _all else "ieee"
            for enabled, enable in ATTENTION:
                if not enabled():
                    stack.callback(enable, False)
                    enable(True)
            if flushes():
                stack.callback(torch.set_flush_denormal, True)
                torch.set_flush_denormal(False)
            yield
    finally:
        torch.set_default_dtype(dtype)


def flushes() -> bool:
    """Whether torch takes the smallest numbers for 0 in this thread, which it does not tell."""
    return not bool(torch.full((1,), 1e-38, dtype=torch.float32) / 10)


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
