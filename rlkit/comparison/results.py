"""Records → the numbers of a comparison, as the one dictionary that results.json, the figures and the tables show."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from statistics import median

import numpy as np

import rlkit
from rlkit.comparison import measuring, naming
from rlkit.comparison.numbers import (
    Band,
    Cell,
    Curve,
    Environment,
    Estimate,
    Normalized,
    Overall,
    Pair,
    Profile,
    Profiles,
    Results,
    Run,
    Scale,
)
from rlkit.comparison.records import Record
from rlkit.statistics import runs as run_statistics
from rlkit.statistics.arrays import EXACT, rounding
from rlkit.statistics.runs import Array, Statistic

THRESHOLDS = 201  # points of a performance profile
SMOOTH = 3  # a curve of held-out evaluations has this many points after step 0 at least, else the attempts are
Cells = dict[str, dict[str, list[Record]]]  # env → algo → its runs


def compute(records: Sequence[Record], missing: Iterable[str] = ()) -> Results:
    """All numbers of a comparison: per environment, over all, of every pair of algorithms, of every run."""
    cells, ranked = arranged(records), arranged(records, ranked=True)
    algos = list(dict.fromkeys(r.algo for r in records))
    envs = {env: environment(found) for env, found in cells.items()}
    shared = [env for env, found in cells.items() if envs[env]["reference"] and len(found) == len(algos)]
    overall = {algo: over_all(algo, envs, shared) for algo in algos} if shared else {}
    if shared:
        algos.sort(key=lambda algo: -overall[algo]["iqm"])
    return {
        "names": naming.names(records),
        "algos": algos,
        "rows": "settings" if len({r.plugin or r.algo for r in records}) < len(algos) else "algorithms",
        "shared": shared,
        "overall": overall,
        "envs": envs,
        "improvement": [pair(x, y, ranked) for x, y in combinations(algos, 2)],
        "profiles": profiles(algos, envs, shared),
        "missing": list(missing),
        "runs": [run(r) for found in cells.values() for algo in algos for r in found.get(algo, [])],
        "measured": measuring.sentence(records),
        "caveats": [],
        "commands": [],
        "rlkit": rlkit.__version__,
    }


def arranged(records: Sequence[Record], ranked: bool = False) -> Cells:
    """The runs of each algorithm in each environment, by seed; scores that are equal but for rounding are equal.

    ranked: so are scores near 0 that rounding alone may have left there. They are for ranks, not to be shown.
    """
    cells: Cells = {}
    for env in dict.fromkeys(r.env for r in records):
        found = sorted((r for r in records if r.env == env), key=lambda r: r.seed)
        raw = scores(found)
        alike = run_statistics.tied(raw, rounding(raw) if ranked else 0.0)
        for r, score in zip(found, alike.tolist(), strict=True):
            cells.setdefault(env, {}).setdefault(r.algo, []).append(replace(r, score=score))
    return cells


def scores(records: Sequence[Record]) -> Array:
    return np.array([r.score for r in records])


def environment(found: dict[str, list[Record]]) -> Environment:
    """One environment: its reference, and the scores and curves of each algorithm there."""
    records = [r for runs in found.values() for r in runs]
    reference = referred(records)
    kind = next((kind for kind in ("evaluation", "training") if all(drawable(r, kind) for r in records)), None)
    return {
        "metric": records[0].metric,
        "unit": "tokens" if any(is_text(r) for r in records) else "steps",
        "reference": reference,
        "algos": {algo: cell(runs, reference) for algo, runs in found.items()},
        "curve": kind,
        "curves": {algo: curves(runs, kind) for algo, runs in found.items()} if kind else {},
    }


def is_text(r: Record) -> bool:
    """Whether a run learned from tokens."""
    return r.kind == "text" if r.kind else r.metric == "accuracy" or r.scored == "problems"


def drawable(r: Record, kind: str) -> bool:
    if kind == "evaluation":
        return kind in r.curves and int((r.curves[kind].env_steps > 0).sum()) >= SMOOTH
    return kind in r.curves and len(r.curves[kind].value) >= 2


def referred(records: Sequence[Record]) -> Scale | None:
    """What is 0 and 1: the reference of the runs, the median of several; without one, the range of these runs.

    None where all runs scored the same as before training: nothing lies between.
    """
    given = [r.reference for r in records if r.reference]
    if given:
        low, high = float(median(x.low for x in given)), float(median(x.high for x in given))
        if low < high:
            return {"low": low, "high": high, "low_is": given[0].low_is, "high_is": given[0].high_is, "range": False}
    low = min([r.before for r in records if r.before is not None] + [r.score for r in records])
    high = max(r.score for r in records)
    if high - low <= EXACT * max(abs(low), abs(high)):  # one score, but for rounding
        return None
    low_is, high_is = "the lowest of these runs, before or after", "the highest of these runs"
    return {"low": low, "high": high, "low_is": low_is, "high_is": high_is, "range": True}


def estimate(statistic: Statistic, *groups: Sequence[Array]) -> Estimate:
    """A statistic with its interval over seeds, which depends on no order of seeds and environments."""
    cells = sorted([np.sort(x).tolist() for x in cell] for cell in zip(*groups, strict=True))
    ordered = [[np.array(x) for x in group] for group in zip(*cells, strict=True)]
    bounds = run_statistics.interval(statistic, *ordered)
    low, high = (None, None) if bounds is None else (float(bounds[0]), float(bounds[1]))
    return {"value": float(statistic(*ordered)), "low": low, "high": high}


def cell(runs: Sequence[Record], reference: Scale | None) -> Cell:
    """One algorithm in one environment."""
    raw = scores(runs)
    found = estimate(run_statistics.iqm, [raw])
    values: Cell = {
        "runs": len(runs),
        "seeds": [r.seed for r in runs],
        "scores": raw.tolist(),
        "mean": float(raw.mean()),
        "iqm": found["value"],
        "low": found["low"],
        "high": found["high"],
        "env_steps": float(median(r.env_steps for r in runs)),
        "seconds": float(median(r.seconds for r in runs)),
        "normalized": None,
    }
    if reference:
        values["normalized"] = on_scale(raw, found, reference)
    return values


def on_scale(raw: Array, found: Estimate, reference: Scale) -> Normalized:
    """Scores and their estimate, from 0 to 1 between the two references."""

    scaled = partial(run_statistics.normalize, low=reference["low"], high=reference["high"])
    low, high = (None if end is None else scaled(end) for end in (found["low"], found["high"]))
    return {"scores": [scaled(x) for x in raw.tolist()], "iqm": scaled(found["value"]), "low": low, "high": high}


def normalized(algo: str, envs: dict[str, Environment], shared: Sequence[str]) -> list[Array]:
    cells = [envs[env]["algos"][algo]["normalized"] for env in shared]
    return [np.array(found["scores"]) for found in cells if found is not None]


def over_all(algo: str, envs: dict[str, Environment], shared: Sequence[str]) -> Overall:
    """IQM of the normalized scores of all runs in the environments that all algorithms share."""
    runs = normalized(algo, envs, shared)
    found = estimate(run_statistics.iqm, runs)
    return {"iqm": found["value"], "low": found["low"], "high": found["high"], "runs": sum(map(len, runs))}


def profiles(algos: Sequence[str], envs: dict[str, Environment], shared: Sequence[str]) -> Profiles | None:
    """The fraction of runs above each threshold with pointwise bands."""
    if not shared:
        return None
    runs = {algo: sorted_runs(normalized(algo, envs, shared)) for algo in algos}
    every = np.concatenate([x for found in runs.values() for x in found])
    low, high = min(0.0, every.min()), max(1.0, every.max())
    thresholds = np.linspace(low - 0.02 * (high - low), high + 0.02 * (high - low), THRESHOLDS)
    statistic = partial(run_statistics.profile, thresholds=thresholds)
    lines: dict[str, Profile] = {}
    for algo, found in runs.items():
        lines[algo] = {"fraction": statistic(found).tolist(), **band(statistic, found)}
    return {"thresholds": thresholds.tolist(), "algos": lines}


def sorted_runs(runs: Sequence[Array]) -> list[Array]:
    """Runs [..., n] of environments in an order of their own, so that no resample depends on how they were given."""
    return sorted((x[..., np.lexsort(np.atleast_2d(x))] for x in runs), key=lambda x: x.tolist())


def band(statistic: Statistic, runs: Sequence[Array]) -> Band:
    """The interval at each point of a line."""
    bounds = run_statistics.interval(statistic, runs, repetitions=run_statistics.BAND_REPETITIONS)
    low, high = (None, None) if bounds is None else (bounds[0].tolist(), bounds[1].tolist())
    return {"low": low, "high": high}


def pair(x: str, y: str, cells: Cells) -> Pair:
    """P(x > y) over the environments that both have runs in, and what may be said of it."""
    common = [env for env, found in cells.items() if x in found and y in found]
    if not common:
        said = "nothing in common"
        return {"x": x, "y": y, "envs": {}, "value": None, "low": None, "high": None, "chance": None, "verdict": said}
    of_x, of_y = ([scores(cells[env][algo]) for env in common] for algo in (x, y))
    found = estimate(run_statistics.improvement, of_x, of_y) if x < y else mirrored(of_y, of_x)
    each = {env: float(run_statistics.improvement([a], [b])) for env, a, b in zip(common, of_x, of_y, strict=True)}
    bounds = None if found["low"] is None else (np.array(found["low"]), np.array(found["high"]))
    chance = run_statistics.chance(of_x, of_y)
    return {"x": x, "y": y, "envs": each, **found, "chance": chance, "verdict": run_statistics.verdict(bounds, chance)}


def mirrored(y: Sequence[Array], x: Sequence[Array]) -> Estimate:
    """P(X > Y) = 1 − P(Y > X), as ties count half for both: the interval does not depend on which row comes first."""
    found = estimate(run_statistics.improvement, y, x)
    low, high = (None if end is None else 1 - end for end in (found["high"], found["low"]))
    return {"value": 1 - found["value"], "low": low, "high": high}


def curves(runs: Sequence[Record], kind: str) -> dict[str, Curve]:
    """IQM curves over env_steps, as far as all of the runs reach, and over seconds.

    Over seconds, a run that has ended keeps its last score.
    """
    found: dict[str, Curve] = {}
    for axis in ("env_steps", "seconds"):
        lines = [(c.env_steps if axis == "env_steps" else c.seconds, c.value) for c in (r.curves[kind] for r in runs)]
        grid = run_statistics.on_a_grid(lines, to_the_last=axis == "seconds")
        if grid is not None:
            x, values = grid[0], sorted_runs([grid[1]])
            line = run_statistics.iqm(values).tolist()
            found[axis] = {"x": x.tolist(), "iqm": line, **band(run_statistics.iqm, values)}
    return found


def run(r: Record) -> Run:
    """One run, as it is listed."""
    return {
        "algo": r.algo,
        "env": r.env,
        "seed": r.seed,
        "score": r.score,
        "low": r.low,
        "high": r.high,
        "before": r.before,
        "episodes": r.episodes,
        "env_steps": r.env_steps,
        "seconds": r.seconds,
        "folder": str(r.folder),
        "command": r.command,
        "metric": r.metric,
        "measure": r.measure,
        "candidates": r.candidates,
        "alarms": r.alarms,
        "versions": dict(r.versions),
    }
