"""What a comparison consists of: every algorithm on every environment with every seed, checked before anything runs."""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import yaml
from annotated_types import Ge

from rlkit.comparison import grid, measuring
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.recording.writers import check_tracker
from rlkit.settings import config, repeat, schema
from rlkit.settings.assemble import assemble
from rlkit.settings.plugins import nearest, short

USAGE = "python -m rlkit.compare algo=ppo,grpo env=cartpole,gsm8k seed=0-4, or run folders (--help lists the keys)"
WORD = re.compile(r"(?:(?P<name>[^=:]+):)?(?P<key>[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
# What a comparison gives all runs, whatever the YAML of a pair says: one procedure of measuring, and one thread each.
DEFAULTS = {"threads": "1", "evaluations": "10", "measure": "latest", "validation_episodes": "none"}
MOST_SEEDS = 10_000  # each is a run of its own, of each algorithm on each environment

Keys = dict[str, str]


@dataclass(frozen=True)
class Compare:
    """The keys of the command line; all others are keys of the runs."""

    algo: tuple[str, ...] = ()  # algorithms, separated by commas: names, dotted names or .py paths
    env: tuple[str, ...] = ()  # environments, likewise
    seed: tuple[str, ...] = ("0-4",)  # seeds: numbers and ranges such as 0-4; an interval needs several
    out: str | None = None  # folder of the comparison; default comparisons/ALGOS-ENVS
    workers: Annotated[int, Ge(1)] | Literal["ray"] | None = None  # runs at a time; none: one for each core


@dataclass(frozen=True)
class Asked:
    """A command line, taken apart."""

    compare: Compare
    keys: Keys  # for all runs
    scoped: tuple[tuple[str, str, str], ...]  # NAME, KEY, VALUE: for the runs whose algorithm or environment is NAME
    folders: tuple[Path, ...]  # what is there already


def parse(argv: Iterable[str]) -> Asked:
    """Take a command line apart: keys of the comparison, keys of all runs, keys of some, folders."""
    own, keys, scoped, folders = {}, {}, [], []
    argv = list(argv)
    schema.once(argv)
    mine, of_runs = schema.settable(Compare), schema.settable(config.Run)
    for word in argv:
        found = WORD.fullmatch(word)
        if found is None or os.path.isdir(word):  # pathlib raises for a word that is too long for a file
            if "=" in word and not os.path.exists(word):
                raise UserError(f"'{word}' is not understood: write {USAGE}")
            folders.append(Path(word))
            continue
        name, key, value = found.group("name", "key", "value")
        if key == "resume":
            raise UserError("resume= is for one run: a comparison goes on by itself, with the same command")
        if "." not in key and key not in {**mine, **of_runs}:
            raise UserError(f"no key '{key}': {nearest(key, dict.fromkeys([*mine, *of_runs]))}")
        if name and (key in mine or key == "seed"):
            raise UserError(f"'{word}': {key}= belongs to the whole comparison, not to {name}")
        if name:
            scoped.append((name, key, value))
        elif key in mine:
            own[key] = value
        else:
            keys[key] = value
    return Asked(config.build(Compare, own, "compare"), keys, tuple(scoped), tuple(folders))


def plan(asked: Asked) -> tuple[list[grid.Job], Path]:
    """Every run, the seeds outermost, so that the first results cover every pair; and the folder of the comparison.

    Raises: UserError for what cannot be: each pair is put together once, before anything runs.
    """
    algos, envs = names("algo", asked.compare.algo), names("env", asked.compare.env)
    for name, key, value in asked.scoped:
        if name not in {**algos, **envs} and name not in {*algos.values(), *envs.values()}:
            raise UserError(f"{name}:{key}={value}: no '{name}' is compared here: {nearest(name, [*algos, *envs])}")
    seeds = numbers(asked.compare.seed)
    out, here = home(asked.compare.out or default_out([*algos], [*envs])), Path.cwd()
    try:
        checked = {(a, e): check(asked, algos[a], envs[e], seeds[0]) for e in envs for a in algos}
    finally:
        os.chdir(here)  # an environment may have left it as it was made, and the runs are processes of their own
    for (algo, env), (_, _, what) in checked.items():
        first = checked[next(iter(algos)), env][2]
        if what != first:
            raise UserError(f"on {env} {algo} is scored by {what}, {next(iter(algos))} by {first}: compare them apart")
    for env in envs:
        measuring.check_alike(env, {algo: yaml.safe_load(checked[algo, env][1])["run"] for algo in algos})
    jobs = []
    for seed in seeds:
        for (algo, env), (keys, text, _) in checked.items():
            folder = out.absolute() / "runs" / f"{algo}-{env}-s{seed}"
            words = [f"algo={algos[algo]}", f"env={envs[env]}", f"seed={seed}"]
            resolved = yaml.safe_load(text)
            resolved["run"]["seed"] = seed
            words += [f"{key}={value}" for key, value in keys.items()]
            jobs.append(grid.Job(algo, env, seed, folder, tuple(words), resolved, here))
    return jobs, out


def names(key: str, given: Sequence[str]) -> Keys:
    """{short name: name} of plug-ins; the short name is part of a run's folder."""
    found: Keys = {}
    for name in given:
        if found.setdefault(short(name), name) != name:
            raise UserError(f"{key}={found[short(name)]},{name}: both would be called {short(name)}; rename one")
    if not found:
        raise UserError(f"{key}= names nothing to compare: write {USAGE}")
    return found


def numbers(given: Sequence[str]) -> list[int]:
    """Seeds in their order, each once: `0-2`, `7` are 0, 1, 2 and 7."""
    seeds: list[int] = []
    for part in given:
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise UserError(
                f"seed={part} is not understood: give whole numbers and ranges, as in seed=0,1,2 or seed=0-4"
            )
        if (count := len(seeds) + int(found[2] or found[1]) - int(found[1]) + 1) > MOST_SEEDS:
            raise UserError(f"seed={','.join(given)[:100]} names {count:,} seeds or more: give at most {MOST_SEEDS:,}")
        seeds += range(int(found[1]), int(found[2] or found[1]) + 1)
    if not seeds:
        raise UserError("seed= is empty: give whole numbers and ranges, as in seed=0,1,2 or seed=0-4")
    return list(dict.fromkeys(seeds))


def default_out(algos: Sequence[str], envs: Sequence[str]) -> str:
    """The same folder for the same names, so that the same command goes on where it was cut off."""
    name = f"{'+'.join(algos)}-{'+'.join(envs)}"
    if len(name) > 80:
        name = f"{name[:71]}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
    return f"comparisons/{name}"


def check(asked: Asked, algo: str, env: str, seed: int) -> tuple[Keys, str, str]:
    """Put a pair together as a run would: its keys, the text of its config.yaml, and what is measured."""
    called = {algo, env, short(algo), short(env)}
    keys = over(over(DEFAULTS, asked.keys), {key: value for name, key, value in asked.scoped if name in called})
    words = {"algo": algo, "env": env, "seed": str(seed), "device": "cpu", **keys}
    try:
        parts = assemble(config.read([f"{key}={value}" for key, value in words.items()]))
        check_tracker(parts.run.logger)
        return keys, parts.text, f"{parts.env.metric} of {parts.env.scored(parts.algo.policy)}"
    except UserError as error:
        some = "" if asked.scoped else "; NAME:KEY=VALUE gives a key to the runs of one algorithm or environment alone"
        of_one = "no key" in str(error) or "does nothing" in str(error)
        several = len(asked.compare.algo) * len(asked.compare.env) > 1 and of_one
        raise UserError(f"{short(algo)} on {short(env)}: {error}{some if several else ''}") from None


def over(below: Keys, above: Keys) -> Keys:
    return {**repeat.without_rivals(below, above), **above}
