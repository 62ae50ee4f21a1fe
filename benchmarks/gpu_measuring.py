"""How work on a GPU is measured: its size, seconds and memory. For gpu_text.py and gpu_gsm8k.py."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rlkit.language import folders

Found = dict[str, Any]  # figures by name, as JSON has them


@dataclass(frozen=True)
class Size:
    """How much work is measured."""

    device: str = "cuda"
    dtype: torch.dtype = torch.bfloat16
    vocab: int = 151_936  # this and the next five: Qwen2-0.5B
    width: int = 896
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2
    inner: int = 4864
    prompts: int = 32
    repeats: int = 8
    read: int = 128  # tokens of a prompt
    written: int = 256
    rows: int = 32  # of a learning step
    time: int = 512  # tokens of each
    rounds: int = 3
    matrix: int = 8192

    @property
    def config(self) -> Found:
        shape = (self.vocab, self.width, self.layers, self.heads, self.kv_heads, self.inner)
        return {**folders.fresh_config("qwen2", *shape, context=4096, end=0), "attention_dropout": 0.0}


SMOKE = Size("cpu", torch.float32, 2048, 32, 2, 4, 2, 64, 2, 2, 6, 5, 2, 12, 1, 64)


def synchronize(size: Size) -> None:
    if size.device == "cuda":
        torch.cuda.synchronize()


def seconds(size: Size, work: Callable[[], object]) -> float:
    """The median over the rounds, after one that is not counted."""
    times = []
    for _ in range(size.rounds + 1):
        synchronize(size)
        began = time.perf_counter()
        work()
        synchronize(size)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


class Peak:
    """What tensors take at most from now on, in GB beyond what is there now; none on a CPU."""

    def __init__(self, size: Size) -> None:
        self.there = size.device == "cuda"
        if self.there:
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()

    def gb(self) -> float | None:
        return round((torch.cuda.max_memory_allocated() - self.before) / 2**30, 2) if self.there else None


class Stopwatch:
    """Seconds that calls of functions took, by name."""

    def __init__(self, size: Size) -> None:
        self.size, self.spent = size, {"generation": 0.0, "training": 0.0}

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **keys: Any) -> Any:
            synchronize(self.size)
            began = time.perf_counter()
            result = work(*words, **keys)
            synchronize(self.size)
            self.spent[name] += time.perf_counter() - began
            return result

        return call
