"""What a run comes to: measured before and after training on the test split, told in tables and in summary.json."""

import platform
from dataclasses import asdict

import torch

import rlkit
from rlkit.api import Algorithm, Env, Reference, Scores
from rlkit.policies import discount
from rlkit.recording.log import Log
from rlkit.scores import Json
from rlkit.statistics.episodes import summarize


def measure(env: Env, algo: Algorithm, episodes: int | None, log: Log, when: str) -> Json:
    """Evaluate greedily on the test split, which nothing in the run looks at; text also shows samples."""
    policy = algo.policy
    log.note(f"measuring {when} training, on the test split ...")
    scores: Scores = env.evaluate(policy, episodes, "test")
    found = {when: summarize(env.metric, scores, True)}
    if scores.samples:
        different = {str(sample.get("answer")).rpartition("\n")[2]: sample for sample in scores.samples[:100]}
        log.show_samples(f"{when}: greedy answers", list(different.values())[:3])
    if exact := env.exact(policy, discount(algo.config)):
        found[when]["exact"] = exact
    reasoned = env.ceiling(policy, episodes) if when == "before" else None
    if reasoned is not None:
        found["ceiling"] = summarize(env.metric, reasoned, True)
        log.note(f"ceiling {found['ceiling']['mean']:.3f}: the untouched model when it may not answer at once")
    return found


def report(log: Log, env: Env, evaluation: Json, unit: str) -> None:
    """The small table at the end: before → after with 95 % intervals."""
    shape = "{:.3f}" if all(abs(e["mean"]) < 10 for e in evaluation.values()) else "{:.1f}"

    def cells(name: str, e: Json) -> list[str]:
        low, high = shape.format(e["low"]), shape.format(e["high"])
        return [name, shape.format(e["mean"]), f"{low} to {high}", f"{e['length']:.0f}"]

    rows = [cells(name, evaluation[name]) for name in ("before", "ceiling", "after") if name in evaluation]
    episodes = evaluation["after"]["episodes"]
    log.table(f"greedy {env.metric} on {episodes} test {unit}", ["", env.metric, "95 %", "length"], rows)
    kinds = evaluation["after"].get("groups", {}) | evaluation["after"].get("kinds", {})
    if kinds:
        names = [name for name in ("before", "ceiling", "after") if name in evaluation]
        both = {name: evaluation[name].get("groups", {}) | evaluation[name]["kinds"] for name in names}
        lines = [[kind, *(f"{both[name][kind]:.2f}" for name in names)] for kind in kinds]
        log.table("accuracy per problem kind", ["kind", *names], lines)
    for name, x in evaluation["after"].get("exact", {}).items():
        log.note(f"exact {name}: {x:.4f}")


def summary(facts: Json, env: Env, evaluation: Json, scored: str, seconds: float) -> Json:
    """What summary.json says: `facts` of the run, what was measured, and what a score is of (`scored`)."""
    return {
        **facts,
        "source": env.source,
        "seconds": round(seconds, 3),
        "device": str(env.device),
        "versions": {"rlkit": rlkit.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "evaluation": evaluation,
        "scored": scored,
        "reference": reference(env, evaluation),
    }


def reference(env: Env, evaluation: Json) -> Json | None:
    """What counts as 0 and as 1: the environment's own, or on text the untouched model and its ceiling."""
    found: Reference | None = env.reference
    if found is None and env.metric == "accuracy" and "ceiling" in evaluation:
        low, high = evaluation["before"]["mean"], evaluation["ceiling"]["mean"]
        found = Reference(low, high, "the untouched model", "its ceiling") if high > low else None
    return asdict(found) if found else None
