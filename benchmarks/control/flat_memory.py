"""Memory over 100,000 iterations of a run: python benchmarks/control/flat_memory.py [iterations]

DQN with one step and one update an iteration, and PPO with short rollouts; megabytes that the process holds.
"""

import sys
import tempfile
from pathlib import Path

import psutil

import rlkit

RUNS = {
    "dqn cartpole, a step and an update an iteration": ("dqn", {"env.rows": 1, "algo.steps": 1, "algo.n_step": 1}),
    "ppo cartpole, 8 × 4 steps an iteration": ("ppo", {"env.rows": 8, "algo.horizon": 4, "algo.epochs": 1}),
}


def main(iterations: int) -> None:
    for name, (algo, keys) in RUNS.items():
        held: list[tuple[int, float]] = []

        def note(metrics: dict[str, float], held: list[tuple[int, float]] = held) -> None:
            if int(metrics["iteration"]) >= (len(held) + 1) * iterations // 10:
                held.append((int(metrics["iteration"]), psutil.Process().memory_info().rss / 2**20))

        with tempfile.TemporaryDirectory() as folder:
            how = {"iterations": iterations, "evaluate_every": 0, "measure": "latest", "quiet": True, **keys}
            rlkit.train(algo, "cartpole", on_iteration=note, out=Path(folder) / "run", **how)
        print(f"{name}: " + ", ".join(f"{megabytes:.0f}" for _, megabytes in held) + " MB", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
