"""Bytes of weights, gradients and optimizer state that a rank holds with policy.shard=full; the engine's copy apart.

    python benchmarks/scale/shard_bytes.py smollm2
    torchrun --nproc-per-node 2 benchmarks/scale/shard_bytes.py smollm2
    torchrun --nproc-per-node 2 benchmarks/scale/shard_bytes.py smollm2 float32 http://HOST:8000

With an address, a vLLM there writes in place of the native engine and gets the weights. Each rank learns from one row
of 16 tokens, once. The last line is what one rank holds, as a share of one process.
"""

import json
import sys
from dataclasses import replace

import psutil
import torch
from torch import Tensor

from rlkit import joining, ranks, shards
from rlkit.language.engine import Native
from rlkit.language.network import LanguageNetwork
from rlkit.policies import clip_gradients
from rlkit.policies.optimizers import Optimization, adam


def held(tensors: list[Tensor]) -> int:
    return sum(shards.mine(x.detach()).nbytes for x in tensors)


def measure(model: str, dtype: str, server: str | None = None) -> dict[str, float | int | str]:
    """One step of one row."""
    keys = LanguageNetwork(model=model, dtype=dtype, shard="full" if ranks.size() > 1 else "auto")  # type: ignore[arg-type]
    policy = (keys if server is None else replace(keys, engine="vllm", server=server)).build()
    optimizer = adam(policy, Optimization())
    whole = sum(p.numel() * p.element_size() for p in policy.parameters())
    text = torch.arange(17)[None] % policy.decoder.vocab
    mask = torch.ones(1, 16, dtype=torch.bool)
    hidden = policy.read(text[:, :-1], mask, mask.sum(-1), mask)
    log_prob, _ = policy.decoder.log_probs(hidden, text[0, 1:], 1.0, entropy=False)
    (-log_prob.mean() / ranks.size()).backward()
    norm = clip_gradients(optimizer, 1.0)
    optimizer.step()
    parameters = list(policy.parameters())
    moments = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, Tensor)]
    own = held(parameters) + held([p.grad for p in parameters if p.grad is not None]) + held(moments)
    policy.ready()
    twin = policy.engine.decoder if isinstance(policy.engine, Native) else None
    copy = 0 if twin is policy.decoder or twin is None else held(list(twin.parameters()))
    return {
        "rank": ranks.rank(),
        "ranks": ranks.size(),
        "parameters": whole // 4,
        "held": own,
        "share": round(own / (4 * whole), 4),
        "engine": copy,
        "gradient_norm": float(norm),
        "peak_memory": int(psutil.Process().memory_info().rss),
    }


if __name__ == "__main__":
    with joining.joined([]):
        for line in ranks.everyones(measure(*(sys.argv[1:] + ["tiny", "float32"][len(sys.argv) - 1 :]))):
            if ranks.first():
                print(json.dumps(line))
