"""Searches whose runs are pretended: how good a trial is, is computed from its learning rate.

Tests that use them ask for the fixture `carried`.
"""

import json
from pathlib import Path

import yaml

from rlkit.comparison import grid
from rlkit.tuning import conduct
from rlkit.tuning.problem import Problem, parse
from rlkit.tuning.study import Study, Trial
from support.words import last

WORDS = ["algo=q_learning", "env=gridworld", "iterations=10", "workers=1", "runs=1", "trials=12", "seeds=2"]
EVALUATIONS = 10


def score(job: grid.Job) -> float:
    """What a pretended run ends at: the better, the nearer its learning rate is to 0.3; seeds differ a little."""
    return 100 - 100 * abs(float(job.config["algo"]["lr"]) - 0.3) + job.seed % 10


def evaluated(job: grid.Job, values: list[float]) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "config.yaml").write_text(yaml.safe_dump(job.config))
    lines = [{"iteration": i + 1, "env_steps": i, "seconds": i, "eval/return": x} for i, x in enumerate(values)]
    (job.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def finish(job: grid.Job, stop: Path, at: float) -> tuple[int, str]:
    """A run that is evaluated ten times on its way, and then measured."""
    evaluated(job, [at * (i + 1) / EVALUATIONS for i in range(EVALUATIONS)])
    (job.folder / "checkpoints").mkdir(exist_ok=True)
    after = {"metric": "return", "mean": at, "low": at, "high": at, "episodes": 3}
    summary = {"algo": job.config["algo"]["name"], "env": job.config["env"]["name"], "seed": job.seed, "env_steps": 9}
    values = {**summary, "seconds": 1.0, "finished": True, "evaluation": {"after": after}}
    (job.folder / "summary.json").write_text(json.dumps(values))
    return 0, ""


def conducted(out: Path, *words: str) -> conduct.Conducted:
    return conduct.conduct(*parse(last(*WORDS, f"out={out}", *words)), "python -m rlkit.tune ...")


def trials(out: Path) -> list[Trial]:
    found = Problem(*parse([*WORDS, f"out={out}"]))
    return Study(out, found.space, "tpe", "median", 0).trials
