"""Whether runs learn the same with gradients by hand and by autograd: python benchmarks/control/same_curves.py [seeds]

Returns of the rollouts over the run, mean and range over seeds, for each pair of algorithm and environment.
"""

import sys
import tempfile
from pathlib import Path

import rlkit

PAIRS = {("ppo", "cartpole"): 100_000, ("a2c", "cartpole"): 100_000, ("dqn", "cartpole"): 30_000}
PAIRS |= {("ppo", "pendulum"): 100_000}
QUARTERS = 4


def curve(algo: str, env: str, steps: int, seed: int, fast: bool) -> list[float]:
    """The mean return of the episodes that ended in each quarter of a run."""
    found: list[list[float]] = [[] for _ in range(QUARTERS)]

    def note(metrics: dict[str, float]) -> None:
        if "rollout/return" in metrics:
            found[min(QUARTERS - 1, int(metrics["env_steps"] * QUARTERS / steps))].append(metrics["rollout/return"])

    with tempfile.TemporaryDirectory() as folder:
        keys = {"policy.fast": fast, "seed": seed, "env_steps": steps, "evaluate_every": 0, "measure": "latest"}
        rlkit.train(algo, env, on_iteration=note, out=Path(folder) / "run", quiet=True, **keys)
    return [sum(part) / max(len(part), 1) for part in found]


def main(seeds: int) -> None:
    print("| | gradients | " + " | ".join(f"quarter {i + 1}" for i in range(QUARTERS)) + " |")
    print("|---" * (QUARTERS + 2) + "|")
    for (algo, env), steps in PAIRS.items():
        for fast in (True, False):
            curves = zip(*(curve(algo, env, steps, seed, fast) for seed in range(seeds)), strict=True)
            cells = [f"{sum(x) / seeds:.0f} ({min(x):.0f} to {max(x):.0f})" for x in curves]
            name = "by hand" if fast else "by autograd"
            print(f"| {algo} {env} {steps:,} steps | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
