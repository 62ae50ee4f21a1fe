"""Names for people: what a row and a column of a comparison are called in its tables, figures and sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rlkit import titles
from rlkit.comparison.numbers import Names, Results
from rlkit.comparison.records import Record, task
from rlkit.settings.plugins import is_short

T = TypeVar("T")


def names(records: Sequence[Record]) -> Names:
    """PPO for ppo, CartPole for cartpole; a name of the user's own stays."""
    return titled([(r.algo, r.env, r.settings.get("env.source", "")) for r in records])


def titled(runs: Sequence[tuple[str, str, str]]) -> Names:
    """The same of runs that may not have begun: of each the row, the column, and the source of its problems."""
    sources = {env: source for _, env, source in runs}
    return {
        "algos": different({algo: titles.algorithm(algo) for algo, _, _ in runs}),
        "envs": different({env: titles.environment(env, source) for env, source in sources.items()}),
    }


def at_home(name: str, env: Mapping[str, object]) -> str:
    """An environment in a list of runs: with its problem, as gym:Acrobot-v1; one of the user's own by its place."""
    return task(name, env) if is_short(name) else name


def different(found: Mapping[str, str]) -> dict[str, str]:
    """Those that would share a name keep the names of the plug-ins."""
    shown = list(found.values())
    return {name: title if shown.count(title) == 1 else name for name, title in found.items()}


def slugs(envs: Iterable[str]) -> list[str]:
    """What stands for each environment in the name of a file, in their order."""
    plain = [re.sub(r"[^\w.-]", "_", env)[:60].strip(".") or "env" for env in envs]
    found = [slug if plain.count(slug) == 1 else f"{slug}-{i}" for i, slug in enumerate(plain)]
    return found if len(set(found)) == len(found) else [f"{i}-{slug}" for i, slug in enumerate(plain)]


def called(records: Sequence[Record], found: Names) -> list[Record]:
    """The runs under these names."""
    return [replace(r, algo=found["algos"][r.algo], env=found["envs"][r.env]) for r in records]


def twice(records: Sequence[Record]) -> Iterator[str]:
    """Rows of one setting, as `ppo lr=1e-3` and `ppo lr=0.001` of two comparisons are."""
    rows: dict[str, set[str]] = {}
    for r in records:
        if "algo.name" in r.settings:
            rows.setdefault(repr((r.env, sorted(r.settings.items()))), set()).add(r.algo)
    for same in dict.fromkeys(tuple(sorted(found)) for found in rows.values() if len(found) > 1):
        yield f"{' and '.join(same)} have the same settings, so the runs of one setting are in {len(same)} rows."


def displayed(results: Results) -> Results:
    """The same numbers under the names that people read."""
    algos, envs = results["names"]["algos"], results["names"]["envs"]

    def renamed(values: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
        return {names[name]: value for name, value in values.items()}

    profiles = results["profiles"]
    return {
        **results,
        "algos": [algos[algo] for algo in results["algos"]],
        "shared": [envs[env] for env in results["shared"]],
        "overall": renamed(results["overall"], algos),
        "envs": {
            envs[env]: {**found, "algos": renamed(found["algos"], algos), "curves": renamed(found["curves"], algos)}
            for env, found in results["envs"].items()
        },
        "improvement": [
            {**pair, "x": algos[pair["x"]], "y": algos[pair["y"]], "envs": renamed(pair["envs"], envs)}
            for pair in results["improvement"]
        ],
        "profiles": profiles and {**profiles, "algos": renamed(profiles["algos"], algos)},
        "runs": [{**run, "algo": algos[run["algo"]], "env": envs[run["env"]]} for run in results["runs"]],
    }
