"""The tests are many small ones: one torch thread each, also in the processes that they start."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.forked import Warm

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A job in a shell's background ignores these signals, and so would the processes that the tests start and signal.
for name in ("SIGINT", "SIGHUP"):
    if signal.getsignal(number := getattr(signal, name, signal.SIGINT)) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if name == "SIGINT" else lambda *_: None)


@pytest.fixture(autouse=True)
def start_method() -> None:
    """Processes start as Python does it: once TorchRL is imported, they would spawn, which takes seconds each."""
    multiprocessing.set_start_method(None, force=True)


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """A process that has imported everything and forks."""
    with Warm() as process:
        yield process


@pytest.fixture(scope="session")
def runs(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small finished runs, which searched lines and files are about."""
    from support.searching import prepared  # which imports all that there is

    return prepared(warm, tmp_path_factory.mktemp("runs"))
