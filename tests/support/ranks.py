"""Runs that torchrun starts with several ranks, each with one thread."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT = ("evaluation_episodes=4", "validation_episodes=4")


def command(ranks: int, *words: str, torchrun: tuple[str, ...] = ()) -> list[str]:
    """One process without torchrun, unless it gets words; several with it, which meet at a port that is free."""
    alone = [sys.executable, "-m"]
    launched = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *torchrun, "-m"]
    start = launched if torchrun or ranks > 1 else []
    return [*alone, *start, "rlkit.run", *words]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | more


def run(
    ranks: int, *words: str, torchrun: tuple[str, ...] = (), timeout: float = 300, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(ranks, *words, torchrun=torchrun),
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of rlkit itself on stderr, without those of torchrun."""
    return [line for line in done.stderr.splitlines() if line.startswith("rlkit: ")]


def trained(folder: Path) -> dict[str, torch.Tensor]:
    """What the newest checkpoint holds of the policy."""
    held = load_file(folder / "checkpoints" / "latest.safetensors")
    return {key: x for key, x in held.items() if "'parts'/'policy'" in key}


def apart(one: Path, other: Path) -> float:
    """The largest difference of two policies."""
    a, b = trained(one), trained(other)
    assert a.keys() == b.keys() and a
    return max(float((a[key].double() - b[key].double()).abs().max()) for key in a if a[key].numel())
