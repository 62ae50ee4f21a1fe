"""Measure a run: python -m rlkit.evaluate RUN_FOLDER [checkpoint=latest] [episodes=N] [split=test] [pass_at=1,8]

Greedy and sampled scores with 95 % intervals, and pass@k for text. evaluation-SPLIT.json in the run folder holds the
same and the accuracy of each problem kind.
"""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlkit import config, seeding
from rlkit.api import Count, Scores, Split, UserError

Z = 1.959964  # the 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Evaluate:
    """The keys of the command line."""

    checkpoint: str = "latest"  # which checkpoint: latest or best
    episodes: Count | None = None  # how many episodes or problems; none: the environment's default
    split: Split = "test"  # train, validation or test
    pass_at: tuple[Count, ...] = ()  # text: estimate pass@k for these k, from max(k) samples a problem


def wilson(successes: float, n: int) -> tuple[float, float]:
    """95 % interval of a proportion: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n) (Wilson 1927)."""
    p, z2 = successes / n, Z * Z
    centre, spread = p + z2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, (centre - spread) / (1 + z2 / n)), min(1.0, (centre + spread) / (1 + z2 / n))


def bootstrap(scores: np.ndarray, repetitions: int = 2000) -> tuple[float, float]:
    """95 % percentile interval of the mean over resampled episodes (Efron 1979); always the same resamples."""
    draws = seeding.numpy_generator(0, "bootstrap").integers(len(scores), size=(repetitions, len(scores)))
    low, high = np.quantile(scores[draws].mean(1), [0.025, 0.975])
    return float(low), float(high)


def summarize(metric: str, scores: Scores, greedy: bool) -> dict[str, Any]:
    """{"metric", "mean", "low", "high", "episodes", "greedy"}; for text also the accuracy of each problem kind."""
    x = scores.score.double().numpy()
    low, high = wilson(x.sum(), len(x)) if metric == "accuracy" else bootstrap(x)
    mean, length = float(x.mean()), float(scores.length.double().mean())
    summary = {"metric": metric, "mean": mean, "low": low, "high": high, "episodes": len(x), "greedy": greedy}
    summary["length"] = length
    if scores.kinds:
        kinds = np.array(scores.kinds)
        summary["kinds"] = {kind: float(x[kinds == kind].mean()) for kind in sorted(set(scores.kinds))}
    if scores.groups:
        groups = np.array(scores.groups)
        summary["groups"] = {group: float(x[groups == group].mean()) for group in sorted(set(scores.groups))}
    return summary


def scored(env: Any, policy: Any) -> str:
    """What a score is of: a reward model ranks pairs, a language model solves problems, others play episodes."""
    return "pairs" if hasattr(policy, "judge") else "problems" if env.kind == "text" else "episodes"


def pass_at_k(n: int, correct: int, k: int) -> float:
    """1 − C(n − c, k)/C(n, k): the chance that k of n samples hold a correct one, unbiased (arXiv:2107.03374)."""
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def pass_at(
    env: Any, policy: Any, ks: Sequence[int], episodes: int | None, split: Split
) -> dict[str, dict[str, float]]:
    """Sample max(ks) answers a problem; for each k the mean over problems with a bootstrap interval."""
    n = max(ks)
    scores = torch.stack([env.evaluate(policy, episodes, split, greedy=False).score for _ in range(n)])  # [n, problems]
    correct = (scores > 0.5).sum(0).tolist()
    rows = {}
    for k in ks:
        each = np.array([pass_at_k(n, c, k) for c in correct])
        low, high = bootstrap(each)
        rows[f"pass@{k}"] = {"mean": float(each.mean()), "low": low, "high": high}
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    from rlkit.run import guarded

    return guarded(evaluate, sys.argv[1:] if argv is None else list(argv))


def evaluate(argv: list[str]) -> int:
    from rlkit import train
    from rlkit.checkpoint import write_atomically
    from rlkit.log import table
    from rlkit.run import assemble

    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    pairs = dict(word.split("=", 1) for word in argv[1:] if "=" in word)
    if len(pairs) < len(argv) - 1 or "=" in argv[0]:
        raise UserError("write: python -m rlkit.evaluate RUN_FOLDER [episodes=N] [pass_at=1,8]")
    asked = config.build(Evaluate, pairs, "evaluate")
    parts = assemble(config.from_folder(argv[0]))
    train.restore(Path(argv[0]), parts.algo, parts.env, asked.checkpoint)
    env, policy = parts.env, parts.algo.policy
    judges = hasattr(policy, "judge")  # a reward model: it ranks texts and writes none
    if asked.pass_at and (env.kind != "text" or judges):
        raise UserError("pass_at counts correct answers and this run writes none: leave it out")
    found: dict[str, Any] = {}
    for greedy in (True,) if judges else (True, False):
        scores = env.evaluate(policy, asked.episodes, asked.split, greedy=greedy)
        found["greedy" if greedy else "sampled"] = summarize(env.metric, scores, greedy)
    if asked.pass_at:
        found |= pass_at(env, policy, asked.pass_at, asked.episodes, asked.split)
    exact = env.exact(policy, getattr(parts.algo.config, "gamma", 0.99)) if hasattr(env, "exact") else {}
    rows = [[name, f"{e['mean']:.3f}", f"{e['low']:.3f} to {e['high']:.3f}"] for name, e in found.items()]
    title = f"{env.metric} on {asked.split}, {found['greedy']['episodes']} {scored(env, policy)}"
    table(title, ["", "mean", "95 %"], rows)
    for name, x in exact.items():
        print(f"exact {name}: {x:.4f}")
    folder = Path(argv[0]).expanduser()
    write_atomically(
        folder / f"evaluation-{asked.split}.json",
        json.dumps(found | ({"exact": exact} if exact else {}), indent=1) + "\n",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
