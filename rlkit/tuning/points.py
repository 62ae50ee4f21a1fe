"""The points of a run at which trials are compared: the same part of each run is done there, whatever its iterations.

An evaluation comes at the end of the iteration that passes a point. So a trial with long iterations has fewer of them,
and each one later.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from rlkit.comparison.grid import Job
from rlkit.recording.files import is_number
from rlkit.recording.writers import reached, records
from rlkit.settings.sections import Section
from rlkit.tuning.study import Trial

EVALUATED = ("eval/return", "eval/accuracy")
STRIDE = 10**6  # offset between the step numbers that Optuna gets for the runs of a trial: more than `MOST`
MOST = 1000  # points of a run


class Evaluation(NamedTuple):
    """A validation of a run."""

    done: Fraction  # of the run
    score: float  # nan where it is not a number


def evaluations(job: Job) -> list[Evaluation]:
    """The validations of a run so far, in order."""
    path, run = job.folder / "metrics.jsonl", job.config["run"]
    found, length = list[Evaluation](), run["iterations"] or run["env_steps"]
    for line in records(path) if path.is_file() else ():
        now = reached(line)
        done = min(Fraction(now.iteration if run["iterations"] else now.env_steps, length), Fraction(1))
        scores = [line[key] for key in EVALUATED if key in line]
        found += [Evaluation(done, float(x) if is_number(x) else math.nan) for x in scores]
    return found


def points(run: Section) -> Fraction:
    """The number of evenly spaced points: one for each evaluation of a run with short iterations.

    Tenths where the number of evaluations depends on the setting, as with `evaluate_every` and `env_steps`.
    """
    every, iterations = run["evaluate_every"], run["iterations"]
    if not iterations:
        found = Fraction(10 if every else run["evaluations"])
    else:
        found = Fraction(iterations, every) if every else Fraction(min(run["evaluations"], iterations))
    return min(max(found, Fraction(1)), Fraction(MOST))


def passed(done: Fraction, among: Fraction) -> int:
    """The last point, counted from 0, that a run has passed; -1 before the first. Its end is the last of all."""
    return (math.floor(done * among) if done < 1 else math.ceil(among)) - 1


def reach(values: dict[int, float], run: int, point: int, value: float) -> None:
    """Set the value at a point of a run, and at those that a long iteration passed over: there the one before holds."""
    before = max((step for step in values if step // STRIDE == run), default=None)
    if before is not None:
        values.update(dict.fromkeys(range(before + 1, STRIDE * run + point), values[before]))
    values[STRIDE * run + point] = value


def finish(values: dict[int, float], run: int, among: Fraction) -> None:
    """Let the last value of a run hold up to its last point: a run whose data are used up ends before it."""
    last = passed(Fraction(1), among)
    there = [step for step in values if step // STRIDE == run]
    if there and STRIDE * run + last not in there:
        reach(values, run, last, values[max(there)])


def spread(trials: Iterable[Trial], among: Fraction) -> list[Trial]:
    """Finished trials with a value at the points of each run.

    An earlier version numbered the evaluations: of a run with half as many, the second stood beside another's second.
    """
    return [
        replace(trial, values=_spread(trial.values, among)) if trial.value is not None else trial for trial in trials
    ]


def _spread(values: dict[int, float], among: Fraction) -> dict[int, float]:
    found, last = dict[int, float](), passed(Fraction(1), among)
    for run in sorted({step // STRIDE for step in values}):
        there = {step: values[step] for step in sorted(values) if step // STRIDE == run}
        if max(there) >= STRIDE * run + last:  # as this version numbers them, or without a difference
            found.update(there)
            continue
        for i, score in enumerate(there.values(), start=1):
            reach(found, run, passed(Fraction(i, len(there)), among), score)
    return found
