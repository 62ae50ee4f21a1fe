"""Detects a lost rank (killed, frozen or disconnected). Without it the others would wait for it forever."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from torch.distributed.distributed_c10d import Store

from rlkit import ranks
from rlkit.terminal import warn

BEAT = 2.0  # seconds between signs of life
SILENT = 20.0  # seconds without a sign of life until a rank counts as lost
BROKEN = 3 * BEAT  # the same after a connection broke


class Pulse(threading.Thread):
    """Writes signs of life to the store of the ranks, and ends this process when those of another rank stop.

    The lowest remaining rank reports it in one line; a rank that ended by itself has already reported why.
    """

    def __init__(self, store: Store, rank: int, size: int, advice: Callable[[], str] = str) -> None:
        super().__init__(name="pulse", daemon=True)
        self.store, self.rank, self.size, self.advice = store, rank, size, advice
        self.patience, self.over = SILENT, threading.Event()
        store.set_timeout(timedelta(seconds=10))
        self.beats, self.seen = 0, {other: (0, time.monotonic()) for other in range(size) if other != rank}

    def run(self) -> None:
        failed = 0
        while not self.over.wait(BEAT if self.beats else 0):
            try:
                self.beat()
                failed = 0
            except RuntimeError:  # of the store
                failed += 1
                if failed > 2 and not self.over.is_set():
                    self.end("rank 0, or the machine that torchrun began on,")

    def beat(self) -> None:
        """One sign of life, and a look at those of the others."""
        self.beats = self.store.add(f"beat/{self.rank}", 1)
        now = time.monotonic()
        for other, (count, since) in self.seen.items():
            found = self.store.add(f"beat/{other}", 0)
            if found != count:
                self.seen[other] = found, now
            elif now - since > self.patience:
                if self.store.add(f"ended/{other}", 0):
                    self.leave(1)
                self.end(f"rank {other}")

    def end(self, who: str) -> None:
        """Say who is lost, once among all ranks, and leave; nothing is left to write."""
        try:
            speaks = self.store.add("lost", 1) == 1
        except RuntimeError:
            speaks = True
        if speaks:
            warn(f"rlkit: {who} was lost, so the other ranks end; {self.advice()}")
        self.leave(1)

    def leave(self, code: int) -> None:
        """End this process at once, and take along what it wrote for itself alone."""
        if ranks.scratch:
            shutil.rmtree(ranks.scratch, ignore_errors=True)
        os._exit(code)

    def broken(self) -> None:
        """A connection broke: wait until it is known who is lost, and end with that; return where nobody is."""
        self.patience = BROKEN
        self.join(2 * BROKEN)

    def asked_to_leave(self, *_: object) -> None:
        """Handle SIGTERM, which torchrun sends to all ranks where one is lost: this one may still say which."""

        def leave() -> None:
            self.broken()
            self.leave(128 + signal.SIGTERM)

        threading.Thread(target=leave, daemon=True).start()

    def ended(self) -> None:
        """This rank ends by itself, and has said why."""
        self.over.set()
        with suppress(RuntimeError):  # the others are gone
            self.store.add(f"ended/{self.rank}", 1)
