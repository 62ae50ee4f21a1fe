"""Finished runs of a comparison, made up."""

from pathlib import Path

import numpy as np

from rlkit.api import Reference
from rlkit.comparison.records import Curve, Record

UNIT = Reference(0.0, 1.0, "a random policy", "the optimum")


def run(algo: str = "ppo", env: str = "maze", seed: int = 0, score: float = 0.5, **more) -> Record:
    given = {"low": score, "high": score, "env_steps": 100, "seconds": 2.0, "reference": UNIT, "before": 0.0} | more
    return Record(algo, env, seed, Path(f"runs/{algo}-{env}-{seed}"), given.pop("metric", "return"), score, **given)


def grid(**scores: list[float]) -> list[Record]:
    """Scores by ALGO_ENV."""
    cells = [(*name.split("_"), values) for name, values in scores.items()]
    return [run(a, e, seed, score) for a, e, values in cells for seed, score in enumerate(values)]


def curved(kind: str, n: int) -> dict[str, Curve]:
    x = np.arange(1.0, n + 1)
    return {kind: Curve(x * 10, x, x / n)}
