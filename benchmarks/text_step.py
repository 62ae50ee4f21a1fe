"""Seconds of one training iteration on text: python benchmarks/text_step.py [against=CHECKOUT] [key=value ...]

The keys are those of `rlkit.run`; without any: algo=grpo env=gsm8k algo.kl_coef=0.04. `against` is another checkout of
this project (0.3.0 or later): both train the same problems in processes of their own, in turn, one iteration at a time.
Times are of the processor, over all threads; the ratio is the median of the iterations' ratios. Peak memory is that of
the process.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOMS = ("generate", "reference", "learn")
KEYS = ["algo=grpo", "env=gsm8k", "algo.kl_coef=0.04"]
WARM, ITERATIONS = 2, 20
HERE = Path(__file__).resolve().parent.parent


def parts_of(keys: list[str]) -> tuple[Any, Any, Callable[[Any], object]]:
    """The algorithm, its environment and the loop's `learn`, wherever this version keeps them."""
    try:
        from rlkit.loop import learn
        from rlkit.settings import config
        from rlkit.settings.assemble import assemble
    except ImportError:  # 0.3
        from rlkit.train import learn  # type: ignore[import-not-found, no-redef]

        from rlkit import config  # type: ignore[attr-defined, no-redef]
        from rlkit.run import assemble  # type: ignore[attr-defined, no-redef]
    from rlkit.meter import Meter

    parts = assemble(config.read(keys))
    return parts.algo, parts.env, lambda algo: learn(algo, Meter())


def work(keys: list[str]) -> None:
    """One iteration for each line that comes in: seconds of each room, tokens and peak memory go out."""
    import torch

    algo, env, learn = parts_of(keys)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints
    for _ in sys.stdin:
        times = [time.process_time()]
        with torch.no_grad():
            rollout = algo.rollout(env)
            times.append(time.process_time())
            algo.buffer.extend(algo.credit(rollout))
            times.append(time.process_time())
        learn(algo)
        times.append(time.process_time())
        seconds = {room: b - a for room, a, b in zip(ROOMS, times, times[1:], strict=False)}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(seconds | {"tokens": int(rollout["mask"].sum()), "peak": peak}), file=out, flush=True)


def measure(checkouts: list[Path], keys: list[str], iterations: int) -> list[list[dict[str, float]]]:
    """What each checkout says of each iteration, in turn."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--work", *keys],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for checkout in checkouts
    ]
    found: list[list[dict[str, float]]] = [[] for _ in workers]
    for _ in range(WARM + iterations):
        for worker, said in zip(workers, found, strict=True):
            assert worker.stdin is not None and worker.stdout is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            said.append(json.loads(worker.stdout.readline()))
    for worker in workers:
        worker.communicate()
    return [said[WARM:] for said in found]


def main(words: list[str]) -> None:
    own = dict(word.split("=", 1) for word in words if word.startswith(("against=", "iterations=")))
    keys = [word for word in words if word.partition("=")[0] not in own] or KEYS
    checkouts = [HERE, *([Path(own["against"]).resolve()] if "against" in own else [])]
    found = measure(checkouts, keys, int(own.get("iterations", ITERATIONS)))
    for checkout, said in zip(checkouts, found, strict=True):
        rooms = "  ".join(f"{room} {statistics.median(row[room] for row in said):.3f}" for room in ROOMS)
        tokens = statistics.median(row["tokens"] for row in said)
        print(f"{rooms}  seconds; {tokens:.0f} tokens, peak {said[-1]['peak']:.0f} MB  ({checkout.name})")
    if len(found) == 2:
        pairs = list(zip(*found, strict=True))
        ratio = {room: statistics.median(a[room] / b[room] for a, b in pairs) for room in ROOMS}
        ratio["both"] = statistics.median(
            (a["reference"] + a["learn"]) / (b["reference"] + b["learn"]) for a, b in pairs
        )
        print("ratio  " + "  ".join(f"{name} {x:.2f}" for name, x in ratio.items()))


if __name__ == "__main__":
    if "--work" in sys.argv:
        work(sys.argv[sys.argv.index("--work") + 1 :])
    else:
        main(sys.argv[1:])
