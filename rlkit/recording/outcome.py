"""Final measurements of a run: test scores before and after training, in tables and in summary.json."""

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import torch

from rlkit import ranks
from rlkit.api import Algorithm, Env, Reference, Sample, UserError
from rlkit.installed import installed
from rlkit.policies import discount
from rlkit.recording.files import LARGEST, is_file, is_number, parse, read_text
from rlkit.recording.log import Log
from rlkit.recording.undo import as_before
from rlkit.scores import Unit, checked, unit_for
from rlkit.seeding import drawn_apart
from rlkit.statistics.episodes import Interval, Measured, form, summarize, within
from rlkit.terminal import warn

Evaluation = dict[str, Measured]  # before and after training, and the ceiling (reasoning baseline)


@runtime_checkable
class Borrows(Protocol):
    """An environment whose problems or scores come from other packages."""

    packages: Sequence[str]


def measure(env: Env, algo: Algorithm, episodes: int | None, log: Log, when: str) -> Evaluation:
    """Evaluate greedily on the test split, which training and selection never use; on text, print samples."""
    log.note(f"measuring {when} training, on the test split ...")
    found, samples = scores(env, algo, episodes, when)
    if samples:
        log.show_samples(f"{when}: greedy answers", told_apart(samples[:100]), env.metric == "accuracy")
    if "ceiling" in found:
        log.note(f"ceiling {found['ceiling']['mean']:.3f}: the untouched model when it may not answer at once")
    return found


def told_apart(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Three samples to print: of different problems where there are some, and the same ones after as before."""
    different = {sample["answer"].rpartition("\n")[2] or sample["prompt"]: sample for sample in samples}
    return list(different.values())[:3] if len(different) >= 3 else samples[:3]


def scores(env: Env, algo: Algorithm, episodes: int | None, when: str) -> tuple[Evaluation, Sequence[Sample]]:
    """The measurements at this time, and the greedy samples; the ceiling is measured with the untrained model only."""
    with drawn_apart(env.seed, "test"), as_before(algo, env):
        found_scores = checked(env, env.evaluate(algo.policy, episodes, "test"))
    found = {when: summarize(env.metric, found_scores, True)}
    with as_before(algo, env):
        exact = env.exact(algo.policy, discount(algo.config))
    if exact:
        found[when]["exact"] = {**exact}
    with drawn_apart(env.seed, "test"), as_before(algo, env):
        reasoned = env.ceiling(algo.policy, episodes) if when == "before" else None
    if reasoned is not None:
        found["ceiling"] = summarize(env.metric, reasoned, True)
    return found, found_scores.samples or []


def before(path: Path, metric: str) -> Evaluation:
    """The evaluation in before.json; empty where there is no such file.

    A line says where the score had another name than today's `metric`: rlkit 0.5 called that of a reward model a return
    where the rewards were the user's own.

    Raises: UserError where the file holds no evaluation.
    """
    if not is_file(path):
        return {}
    try:
        found = parse(read_text(path, LARGEST))  # rows may have thousands of kinds
    except ValueError as error:
        found = error
    if isinstance(found, dict) and "before" in found and all(map(_is_measured, found.values())):
        if (was := found["before"]["metric"]) != metric and ranks.first():
            warn(f"{path.parent}: the score was called {was}; from here on, eval/{was} in its files is eval/{metric}")
        return found
    raise UserError(f"{path} is damaged: remove it, and resume measures the untouched policy again")


def _is_measured(x: object) -> bool:
    """Whether this is a result of `summarize`, as far as the final tables need it."""
    if not isinstance(x, dict) or not isinstance(x.get("metric"), str):
        return False
    tables = [x.get(name, {}) for name in ("kinds", "groups", "exact")]
    if not all(isinstance(table, dict) for table in tables):
        return False
    beside = x.get("metrics", {})
    if not isinstance(beside, dict) or not all(isinstance(each, dict) for each in beside.values()):
        return False
    numbers = [x.get(key) for key in ("mean", "low", "high", "length", "episodes")]
    numbers += [each.get(key) for each in beside.values() for key in ("mean", "low", "high")]
    numbers += [value for table in tables for value in table.values()]
    return all(isinstance(value, float) or is_number(value) for value in numbers)  # no integer of 400 digits


def report(log: Log, env: Env, evaluation: Evaluation, unit: Unit) -> None:
    """Print the final table: before → after with 95 % intervals."""
    shape = decimals((e["mean"], e["low"], e["high"]) for e in evaluation.values())

    def cells(name: str, e: Measured) -> list[str]:
        return [name, f"{e['mean']:{shape}}", within(e["low"], e["high"], e["episodes"], shape), f"{e['length']:.0f}"]

    rows = [cells(name, evaluation[name]) for name in ("before", "ceiling", "after") if name in evaluation]
    episodes = evaluation["after"]["episodes"]
    title = f"greedy {env.metric} on {episodes} test {unit_for(episodes, unit)}"
    log.table(title, ["", env.metric, "95 %", "length"], rows)
    report_parts(log, env.metric, evaluation, "kinds", "kind")
    report_parts(log, env.metric, evaluation, "groups", "group")
    report_metrics(log, evaluation)
    for name, x in evaluation["after"].get("exact", {}).items():
        log.note(f"exact {name}: {x:.4f}")


def report_parts(log: Log, metric: str, evaluation: Evaluation, what: Literal["kinds", "groups"], called: str) -> None:
    """A table of the score by kind of problem, or by the groups that kinds fall into."""
    names = [name for name in ("before", "ceiling", "after") if name in evaluation]
    parts = {name: evaluation[name].get(what, {}) for name in names}
    if parts["after"]:
        shape = decimals((x, x, x) for table in parts.values() for x in table.values())
        lines = [[part, *(f"{parts[name].get(part, math.nan):{shape}}" for name in names)] for part in parts["after"]]
        log.table(f"{metric} per {called} of problems", [called, *names], lines)


def decimals(measured: Iterable[tuple[float, float, float]]) -> str:
    """How a table writes means and their intervals: with one decimal where a mean is large, else as `form` has it."""
    found = list(measured)
    return form(x for each in found for x in each) if all(abs(mean) < 10 for mean, *_ in found) else ".1f"


def report_metrics(log: Log, evaluation: Evaluation) -> None:
    """Print a table of the metrics measured beside the score, with 95 % intervals; each has its own size."""
    given = {when: evaluation[when].get("metrics", {}) for when in ("before", "ceiling", "after") if when in evaluation}
    names = list(dict.fromkeys(name for metrics in given.values() for name in metrics))

    def cells(name: str) -> list[str]:
        held = [metrics.get(name) for metrics in given.values()]
        shape = decimals((e["mean"], e["low"], e["high"]) for e in held if e is not None)
        return ["" if e is None else f"{e['mean']:{shape}} {ends(e, shape)}" for e in held]

    def ends(e: Interval, shape: str) -> str:
        return within(e["low"], e["high"], e.get("episodes", 0), shape).replace(" to ", " ")

    if names:
        rows = [[name, *cells(name)] for name in names]
        log.table("beside it: mean, and 95 % from and to", ["", *given], rows)


def summary(
    facts: Mapping[str, object], env: Env, evaluation: Evaluation, scored: str, seconds: float
) -> dict[str, object]:
    """The content of summary.json: `facts` of the run, the measurements, and which parameters were `scored`."""
    own = {"rlkit": installed(), "torch": torch.__version__, "python": platform.python_version()}
    borrowed = {name: _version(name) for name in env.packages} if isinstance(env, Borrows) else {}
    return {
        **facts,
        "source": env.source,
        "seconds": round(seconds, 3),
        "device": str(env.device),
        "versions": own | borrowed,
        "evaluation": evaluation,
        "scored": scored,
        "kind": env.kind,
        "reference": reference(env, evaluation),
    }


def _version(package: str) -> str:
    """The version of a package; it may be installed without metadata."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def reference(env: Env, evaluation: Evaluation) -> dict[str, object] | None:
    """The scores that count as 0 and 1: the environment's reference, or on text the untrained model and its ceiling."""
    found: Reference | None = env.reference
    if found is None and env.metric == "accuracy" and "ceiling" in evaluation:
        low, high = evaluation["before"]["mean"], evaluation["ceiling"]["mean"]
        found = Reference(low, high, "the untouched model", "its ceiling") if high > low else None
    return asdict(found) if found else None
