"""PPO on CartPole with 10 seeds, two at a time: rlkit.compare beside as many processes of Stable-Baselines3.

python benchmarks/control/comparison.py [flags]

The settings of A (ppo_cartpole.py); the seconds are those of everything, imports too. rlkit.compare
does what it does unless told otherwise: each run is measured before and after on 100 episodes and ten times between on
20, and there are statistics, figures and a page. Stable-Baselines3's processes play 20 episodes at the end.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from ppo_cartpole import COMMON, A
from side_by_side import FIRST, HERE, Side, parser, run, sides, spread

WORK = {**COMMON, **A, "env_steps": 102_400}


def ours(steps: int, seeds: int, workers: int) -> list[float]:
    """rlkit.compare; the mean returns of the runs."""
    keys = {key: value for key, value in WORK.items() if key not in ("algo", "env")} | {"env_steps": steps}
    named = [f"seed={','.join(map(str, range(seeds)))}", f"workers={workers}"]
    path = os.pathsep.join(filter(None, (str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))))
    with tempfile.TemporaryDirectory() as folder:
        words = ["algo=ppo", "env=cartpole", *named, f"out={folder}/all", *(f"{k}={x}" for k, x in keys.items())]
        command = [sys.executable, "-m", "rlkit.compare", *words]
        surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        subprocess.run(command, env=surroundings, stdout=subprocess.DEVNULL, check=True)
        summaries = sorted(Path(folder).glob("all/runs/*/summary.json"))
        assert len(summaries) == seeds, f"{len(summaries)} runs of {seeds}"
        return [json.loads(path.read_text(encoding="utf-8"))["evaluation"]["after"]["mean"] for path in summaries]


def theirs(side: Side, steps: int, seeds: int, workers: int) -> list[float]:
    """A process for each seed, `workers` at a time; the scores."""
    works = [{**WORK, "env_steps": steps, "seed": seed} for seed in range(seeds)]
    with ThreadPoolExecutor(workers) as pool:
        return [float(line["score"]) for line in pool.map(lambda work: run(side, work), works)]


def timed(call: Callable[[], list[float]]) -> tuple[float, float]:
    """Seconds, and the mean score."""
    began = time.perf_counter()
    scores = call()
    return time.perf_counter() - began, statistics.mean(scores)


def main(asked: argparse.Namespace) -> None:
    steps = asked.steps or WORK["env_steps"]
    how = (steps, asked.seeds, asked.workers)
    print(f"\n{asked.seeds} seeds of {steps:,} steps, {asked.workers} at a time, {asked.rounds} rounds\n", flush=True)
    calls: dict[str, Callable[[], list[float]]] = {}
    for side in sides(asked, ("rlkit", "SB3")):
        calls[side.name] = partial(ours, *how) if side.name == FIRST else partial(theirs, side, *how)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for number in range(asked.rounds):
        for name, call in calls.items():
            found[name].append(timed(call))
            print(f"  round {number + 1}, {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    print("| | seconds | rlkit is so many times as fast | mean greedy score |\n| --- | --- | --- | --- |")
    for name, each in found.items():
        pairs = zip(each, found.get(FIRST, each), strict=True)
        lead = spread([theirs[0] / ours[0] for theirs, ours in pairs]) if FIRST in found and name != FIRST else ""
        seconds, score = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"| {name} | {seconds:.1f} | {lead} | {score:.3g} |")


if __name__ == "__main__":
    flags = parser(__doc__)
    flags.add_argument("--seeds", type=int, default=10, help="how many runs (default 10)")
    flags.add_argument("--workers", type=int, default=2, help="how many at a time (default 2)")
    main(flags.parse_args())
