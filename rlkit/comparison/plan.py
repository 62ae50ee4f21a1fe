"""What a comparison consists of: every row in every column with every seed, checked before anything runs."""

import glob
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import yaml
from annotated_types import Ge

from rlkit import memory
from rlkit.comparison import grid, measuring, rows
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.recording.files import is_file
from rlkit.recording.writers import check_tracker
from rlkit.settings import config, places, plugins, repeat, schema, sections
from rlkit.settings.assemble import Parts, assemble
from rlkit.settings.plugins import nearest, short
from rlkit.settings.synonyms import instead
from rlkit.terminal import warn

USAGE = "python -m rlkit.compare algo=ppo,grpo env=cartpole,gsm8k seed=0-4, or run folders (--help lists the keys)"
WORD = re.compile(r"(?:(?P<name>[^=:]+):)?(?P<key>[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
# What a comparison gives all runs, whatever the YAML of a pair says: one procedure of measuring, and one thread each.
DEFAULTS = {"threads": "1", "evaluations": "10", "measure": "latest", "validation_episodes": "none"}
MOST_SEEDS = 10_000  # each is a run of its own, of each algorithm on each environment
Keys = rows.Keys


@dataclass(frozen=True)
class Compare:
    """The keys of the command line; all others are keys of the runs."""

    algo: tuple[str, ...] = ()  # algorithms, separated by commas: names, dotted names, .py paths, or MY_NAME:NAME
    env: tuple[str, ...] = ()  # environments, separated by commas: names, dotted names, .py paths, or MY_NAME:NAME
    seed: tuple[str, ...] = ("0-4",)  # seeds: numbers and ranges such as 0-4; an interval needs several
    seeds: Annotated[int, Ge(1)] | None = None  # number of seeds, counted from 0; in place of seed
    out: str | None = None  # folder of the comparison; default comparisons/ALGOS-ENVS
    workers: Annotated[int, Ge(1)] | Literal["ray"] | None = None  # runs at a time; none: cores/threads; ray: a cluster


@dataclass(frozen=True)
class Asked:
    """The parts of a command line."""

    compare: Compare
    keys: Keys  # for all runs
    scoped: tuple[tuple[str, str, str], ...]  # NAME, KEY, VALUE: for the runs whose algorithm or environment is NAME
    folders: tuple[Path, ...]  # what is there already


@dataclass(frozen=True)
class Checked:
    """A pair that can be put together."""

    keys: Keys  # of its runs
    text: str  # of their config.yaml
    measured: str  # the score, in words


def parse(argv: Iterable[str]) -> Asked:
    """Separate a command line into keys of the comparison, of all runs, of some runs, and folders."""
    own, keys, scoped, folders = {}, {}, [], []
    argv = list(argv)
    schema.once(word for word in argv if not os.path.isdir(word))  # runs may lie in lr=1 and lr=2
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
        if "." not in key and key not in {**mine, **of_runs, "config": ""}:
            raise UserError(f"no key '{key}': {instead(key, 'run', list({**mine, **of_runs}))}")
        if name and (key in mine or key == "seed"):
            raise UserError(f"'{word}': {key}= belongs to the whole comparison, not to {name}")
        if name:
            scoped.append((name, key, value))
        elif key in mine:
            own[key] = value
        else:
            keys[key] = value
    if {"seed", "seeds"} <= own.keys():
        raise UserError(f"give seed={own['seed']} or seeds={own['seeds']}, not both")
    return Asked(config.build(Compare, own, "compare"), keys, tuple(scoped), tuple(folders))


def explained(asked: Asked) -> Asked:
    """The same; one line says of each value with commas within a mapping that it is one."""
    for key, text in [*asked.keys.items(), *((key, text) for _, key, text in asked.scoped)]:
        if said := rows.unparted(key, text):
            warn(said)
    return asked


def plan(asked: Asked) -> tuple[list[grid.Job], Path]:
    """Every run, the seeds outermost, so that the first results cover every pair; and the folder of the comparison.

    Raises: UserError for what cannot be: each pair is put together once, before anything runs.
    """
    algos, envs = names("algo", asked.compare.algo), names("env", asked.compare.env)
    played = [*envs.values()]
    columns = rows.lines("env", envs, asked.keys, asked.scoped, played)
    table = rows.lines("algo", algos, asked.keys, asked.scoped, played)
    listening = {name for line in (*table, *columns) for name in line.called}
    for name, key, value in asked.scoped:
        if name not in listening:
            raise UserError(f"{name}:{key}={value}: no '{name}' is compared here: {nearest(name, [*algos, *envs])}")
    rows.refuse_crossed(table, columns, asked.scoped)
    rows.refuse_hidden(table, columns, asked.keys, asked.scoped)
    refuse_shared(table, columns)
    seeds = numbers(asked.compare.seed if asked.compare.seeds is None else (f"0-{asked.compare.seeds - 1}",))
    out = home(asked.compare.out or default_out([row.slug for row in table], [column.slug for column in columns]))
    here = Path.cwd()
    try:
        several = len(table) * len(columns) > 1
        checked = {
            (r, c): check(asked, row, column, seeds[0], several)
            for c, column in enumerate(columns)
            for r, row in enumerate(table)
        }
    finally:
        os.chdir(here)  # an environment may have left it as it was made, and the runs are processes of their own
    check_measures(table, columns, checked)
    return [
        job(table[r], columns[c], seed, found, out, here) for seed in seeds for (r, c), found in checked.items()
    ], out


def refuse_shared(table: Sequence[rows.Line], columns: Sequence[rows.Line]) -> None:
    """Refuse names of which two pairs make one folder, as a-b on c and a on b-c do: one of the two would never run."""
    pairs: dict[str, str] = {}
    for row in table:
        for column in columns:
            folder, pair = stem(row, column), f"{row.name} on {column.name}"
            if pairs.setdefault(folder, pair) != pair:
                raise UserError(f"the runs of {pairs[folder]} and of {pair} would share {folder}: rename one of them")


def stem(row: rows.Line, column: rows.Line) -> str:
    """The name of the folders of a pair, without the seed."""
    return f"{row.slug}-{column.slug}"


def check_measures(
    table: Sequence[rows.Line], columns: Sequence[rows.Line], checked: Mapping[tuple[int, int], Checked]
) -> None:
    """Refuse rows that are measured otherwise than the first one in a column."""
    for c, column in enumerate(columns):
        for r, row in enumerate(table):
            what, first = checked[r, c].measured, checked[0, c].measured
            if what != first:
                raise UserError(
                    f"on {column.name} {row.name} is scored by {what}, {table[0].name} by {first}: "
                    "compare them separately"
                )
    for c, column in enumerate(columns):
        runs = {row.name: yaml.safe_load(checked[r, c].text)["run"] for r, row in enumerate(table)}
        measuring.check_alike(column.name, runs)


def job(row: rows.Line, column: rows.Line, seed: int, found: Checked, out: Path, here: Path) -> grid.Job:
    """One run, with its folder."""
    folder = out.absolute() / "runs" / f"{stem(row, column)}-s{seed}"
    words = {"algo": row.plugin, "env": column.plugin, "seed": str(seed), **found.keys}
    resolved = yaml.safe_load(found.text)
    resolved["run"]["seed"] = seed
    return grid.Job(
        row.name, column.name, seed, folder, tuple(f"{key}={value}" for key, value in words.items()), resolved, here
    )


def of_other_seeds(jobs: Sequence[grid.Job]) -> Iterator[grid.Job]:
    """These runs with the other seeds that their folder holds: the report takes them for repetitions of these.

    It leaves out links, and what has no summary.
    """
    asked = {job.folder for job in jobs}
    for stem, job in {job.folder.with_name(job.name.removesuffix(f"-s{job.seed}")): job for job in jobs}.items():
        for folder in sorted(stem.parent.glob(f"{glob.escape(stem.name)}-s*")):
            seed = folder.name.removeprefix(f"{stem.name}-s")
            counts = not folder.is_symlink() and (folder / "summary.json").is_file()
            if seed.isdecimal() and folder not in asked and counts:
                resolved = {**job.config, "run": {**job.config["run"], "seed": int(seed)}}
                yield replace(job, seed=int(seed), folder=folder, config=resolved)


def names(key: str, given: Sequence[str]) -> Keys:
    """{name: plug-in}: the name is the user's own, NAME:PLUGIN, or the plug-in's short one."""
    found: Keys = {}
    for word in given:
        own = rows.OWN.fullmatch(word)
        name, plugin = (own["name"].strip(), own["plugin"].strip()) if own else (short(word), word)
        if own and key == "env" and plugin.isidentifier() and plugin not in plugins.names("envs"):
            raise UserError(
                f"no environment '{plugin}' in env={word}: a class of your own is given as env=gym env.entry={word}; "
                f"{nearest(plugin, plugins.names('envs'))}"
            )
        if not name or found.setdefault(name, plugin) != plugin:
            raise UserError(
                f"{key}={found.get(name, '')},{plugin}: both would be called {name}; give one a name of its own: "
                f"{key}=NAME:{plugin}"
            )
    if not found:
        raise UserError(f"{key}= names nothing to compare: write {USAGE}")
    return found


def numbers(given: Sequence[str]) -> list[int]:
    """Seeds in their order, each once: `0-2`, `7` are 0, 1, 2 and 7."""
    seeds: list[int] = []
    for part in given:
        found = re.fullmatch(r"(\d{1,30})(?:-(\d{1,30}))?", part.strip())
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
        exact = name.encode("utf-8", "surrogatepass")
        name = f"{name[:71]}-{hashlib.blake2b(exact, digest_size=4).hexdigest()}"
    return f"comparisons/{name}"


def check(asked: Asked, row: rows.Line, column: rows.Line, seed: int, several: bool) -> Checked:
    """Put a pair together as a run would; `several` says whether there are other pairs."""
    called = row.called | column.called
    scoped = rows.told_to(called, asked.scoped)
    try:
        for_all = {} if "config" in scoped else asked.keys  # a file for these runs takes the place of one for all
        keys = {**over(over(defaults(for_all), asked.keys), scoped), **row.keys, **column.keys}
        words = {"algo": row.plugin, "env": column.plugin, "seed": str(seed), "device": "cpu", **keys}
        parts = assemble(config.read([f"{key}={value}" for key, value in words.items()]))
        check_tracker(parts.run.logger)
        memory.check_algorithm(parts.algo)
        refuse_output(parts)
        return Checked(keys, parts.text, f"{parts.env.metric} of {parts.env.scored(parts.algo.policy)}")
    except UserError as error:
        some = "" if asked.scoped else "; NAME:KEY=VALUE gives a key to the runs of one algorithm or environment alone"
        of_one = "no key" in str(error) or "does nothing" in str(error)
        raise UserError(f"{row.name} on {column.name}: {error}{some if several and of_one else ''}") from None


def refuse_output(parts: Parts) -> None:
    """Refuse a folder that the runs would write to one and all."""
    config = parts.algo.config
    found = places.marked(type(config)) if is_dataclass(config) else {}
    for key, place in found.items():
        if place.kind == "output" and (value := vars(config)[key]) is not None:
            raise UserError(f"algo.{key}={value} is for one run, and here several would write there: leave it out")


def defaults(asked: Keys) -> Keys:
    """DEFAULTS, but for what a file says that was given for all runs: that was asked for, too."""
    there = "config" in asked and is_file(home(asked["config"]))  # else the run says that it is not
    said = sections.read(home(asked["config"])).get("run", {}) if there else {}
    return {key: x for key, x in repeat.without_rivals(DEFAULTS, said).items() if key not in said}


def over(below: Keys, above: Keys) -> Keys:
    return {**repeat.without_rivals(below, above), **above}
