"""How much faster two ranks are than one, in one call: python benchmarks/scale/ranks.py heavy|text [ROUNDS]

heavy: PPO where a step of the environment computes for 5 ms. text: GRPO on smollm2, one thread a rank. Both count
environment steps, or tokens, a second of the iterations after the first; measurements before and after are left out.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS = {
    "heavy": ["algo=ppo", f"env={HERE / 'heavy.py'}", "env.rows=8", "algo.horizon=32", "iterations=5"],
    "text": [
        *("algo=grpo", "env=gsm8k", "policy.model=smollm2", "env.rows=16", "env.max_tokens=48", "iterations=3"),
        *("algo.group=8", "env.validation=4"),
    ],
}


def rate(name: str, ranks: int, torchrun: bool = True) -> float:
    """Steps a second of one run."""
    start = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"] if torchrun else []
    with tempfile.TemporaryDirectory() as folder:
        words = [*RUNS[name], "threads=1", "evaluation_episodes=1", "validation_episodes=1", f"out={folder}/run"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, "-m", *start, "rlkit.run", *words], check=True, env=environment, capture_output=True
        )
        lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    steps, seconds = zip(*((line["env_steps"], line["seconds"]) for line in lines), strict=True)
    return float((steps[-2] - steps[0]) / (seconds[-2] - seconds[0]))  # the last one is measured afterwards


def main(name: str, rounds: int = 3) -> None:
    found: dict[str, list[float]] = {"one process": [], "torchrun, 1 rank": [], "torchrun, 2 ranks": []}
    for _ in range(rounds):
        found["one process"].append(rate(name, 1, torchrun=False))
        found["torchrun, 1 rank"].append(rate(name, 1))
        found["torchrun, 2 ranks"].append(rate(name, 2))
    base = statistics.median(found["one process"])
    for what, rates in found.items():
        middle = statistics.median(rates)
        print(f"{what:18} {middle:10.1f} a second  {middle / base:5.2f} times  {[round(x, 1) for x in rates]}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
