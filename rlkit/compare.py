"""Compare algorithms: python -m rlkit.compare algo=ppo,grpo env=cartpole,gsm8k seed=0,1,2,3,4 [key=value ...]

Runs every algorithm on every environment with every seed, each as a process of its own, then writes the statistics of
all of them: a table, figures and one page. The same command again goes on where it was cut off. Instead of keys, run
folders: python -m rlkit.compare runs/* compares what is there.
"""

import hashlib
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import yaml
from annotated_types import Ge

from rlkit import config, schema, usage
from rlkit.api import UserError
from rlkit.comparison import grid
from rlkit.plugins import nearest, short

USAGE = "python -m rlkit.compare algo=ppo,grpo env=cartpole,gsm8k seed=0-4, or run folders (--help lists the keys)"
WORD = re.compile(r"(?:(?P<name>[^=:]+):)?(?P<key>[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
DEFAULTS = {"threads": "1", "evaluations": "10"}

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


def compare(argv: list[str]) -> int:
    if not argv or {"-h", "--help"} & set(argv):
        return show_help()
    asked = parse(argv)
    if asked.folders:
        return compare_folders(asked, argv)
    jobs, out = plan(asked)
    if (out / "config.yaml").is_file():
        raise UserError(f"out={out} is a run's folder: give a comparison a folder of its own")
    with grid.alone(out):
        config.prepare_folder(out / "runs")
        for job in jobs:
            grid.check(job)
        missing = carry_out(jobs, asked.compare.workers, out)
        if missing is None:
            print("rlkit: stopped; the same command goes on from here", file=sys.stderr)
            return 1
        lost = [job for job in jobs if job.name in missing]
        for job in lost:
            print(f"missing: {job.name}: {missing[job.name]}\n  again: python -m rlkit.run {shlex.join(job.command())}")
        words = [f"{job.algo} on {job.env}, seed {job.seed}: {missing[job.name]}" for job in lost]
        report([folder for folder in grid.runs_of(out) if folder.name not in missing], out, argv, words)
    return 1 if missing else 0


def carry_out(jobs: list[grid.Job], workers: int | str | None, out: Path) -> dict[str, str] | None:
    """Finish all runs: {name: reason} of those that could not be; None when it was interrupted."""
    from rlkit.comparison.on_ray import by_ray
    from rlkit.comparison.view import watch

    stop = out / ".stop"
    for left_over in (stop, *(job.now for job in jobs)):
        left_over.unlink(missing_ok=True)
    states = [grid.state(job) for job in jobs]
    todo = [job for job, state in zip(jobs, states, strict=True) if state != "finished"]
    cut = states.count("cut off")
    done, new = len(jobs) - len(todo), len(todo) - cut
    print(f"{len(jobs)} run{'s' * (len(jobs) > 1)} in {out}: {done} finished, {cut} to continue, {new} to start")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # what stops a run safely stops all of them
    try:
        if workers == "ray":
            return watch(todo, by_ray(todo, stop), stop)
        return watch(todo, grid.by_processes(todo, int(workers or grid.cores()), stop), stop)
    except KeyboardInterrupt:
        stop.touch()
        return None
    finally:
        signal.signal(signal.SIGTERM, before)


def parse(argv: Iterable[str]) -> Asked:
    """Take a command line apart: keys of the comparison, keys of all runs, keys of some, folders."""
    own, keys, scoped, folders = {}, {}, [], []
    mine, of_runs = schema.settable(Compare), schema.settable(config.Run)
    for word in argv:
        found = WORD.fullmatch(word)
        if found is None or Path(word).is_dir():
            if "=" in word and not Path(word).exists():
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
    out = Path(asked.compare.out or default_out([*algos], [*envs])).expanduser()
    checked = {(a, e): check(asked, algos[a], envs[e], seeds[0]) for e in envs for a in algos}
    for (algo, env), (_, _, what) in checked.items():
        first = checked[next(iter(algos)), env][2]
        if what != first:
            raise UserError(f"on {env} {algo} is scored by {what}, {next(iter(algos))} by {first}: compare them apart")
    jobs = []
    for seed in seeds:
        for (algo, env), (keys, text, _) in checked.items():
            folder = out.absolute() / "runs" / f"{algo}-{env}-s{seed}"
            words = [f"algo={algos[algo]}", f"env={envs[env]}", f"seed={seed}"]
            resolved = yaml.safe_load(text)
            resolved["run"]["seed"] = seed
            words += [f"{key}={value}" for key, value in keys.items()]
            jobs.append(grid.Job(algo, env, seed, folder, tuple(words), resolved, Path.cwd()))
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
    from rlkit.settings.assemble import assemble

    called = {algo, env, short(algo), short(env)}
    keys = over(over(DEFAULTS, asked.keys), {key: value for name, key, value in asked.scoped if name in called})
    words = {"algo": algo, "env": env, "seed": str(seed), "device": "cpu", **keys}
    try:
        parts = assemble(config.read([f"{key}={value}" for key, value in words.items()]))
        return keys, parts.text, f"{parts.env.metric} of {parts.env.scored(parts.algo.policy)}"
    except UserError as error:
        some = "" if asked.scoped else "; NAME:KEY=VALUE gives a key to the runs of one algorithm or environment alone"
        several = len(asked.compare.algo) * len(asked.compare.env) > 1 and str(error).startswith("no key")
        raise UserError(f"{short(algo)} on {short(env)}: {error}{some if several else ''}") from None


def over(below: Keys, above: Keys) -> Keys:
    return {**config.without_rivals(below, above), **above}


def compare_folders(asked: Asked, argv: Sequence[str]) -> int:
    """Compare runs that are there, whoever made them; a comparison's folder stands for its runs."""
    if asked.keys or asked.scoped or asked.compare != Compare(out=asked.compare.out):
        raise UserError(
            f"'{asked.folders[0]}' stands for a folder, and folders are compared as they are: give only out=FOLDER "
            "beside them, or only keys (algo=, env=, ...)"
        )
    given = [path.expanduser() for path in asked.folders if not path.is_file()]  # runs/* also names the files there
    found = [run for folder in given for run in (grid.runs_of(folder) if grid.is_comparison(folder) else [folder])]
    runs = {path.resolve(): path for path in found}
    name = f"folders-{hashlib.blake2b(repr(sorted(runs)).encode(), digest_size=4).hexdigest()}"
    alone = len(given) == 1 and grid.is_comparison(given[0])
    out = asked.compare.out or (given[0] if alone else Path("comparisons", name))
    report(list(runs.values()), Path(out).expanduser(), argv)
    return 0


def report(folders: Sequence[Path], out: Path, argv: Sequence[str], missing: Sequence[str] = ()) -> None:
    """Write and show the statistics of all finished runs; what is none is named and left out."""
    from rlkit.comparison import records

    found, left_out = [], []
    for folder in folders:
        try:
            found.append(records.read(folder))
        except UserError as error:
            left_out.append(str(error))
            print(f"left out: {error}", file=sys.stderr)
    if not found:
        raise UserError(f"there is no finished run to compare: write {USAGE}")
    from rlkit.comparison import report as pages

    config.prepare_folder(out)
    command = f"python -m rlkit.compare {shlex.join(argv)}"
    pages.show(pages.write(found, out, [*missing, *left_out], command))
    print(f"the page: {out / 'index.html'}")


def show_help() -> int:
    """Print the keys with their meaning."""
    about = re.sub(r"(?<!\n)\n(?!\n)", " ", (__doc__ or "").strip())  # as wide as the terminal
    run = [row for row in schema.explain(config.Run, dict(DEFAULTS), "run") if not row[0].startswith(("seed=", "out="))]
    words = [
        ("KEY=VALUE", "for all runs: the keys below, algo.KEY, env.KEY and policy.KEY"),
        ("NAME:KEY=VALUE", "for the runs of one algorithm or environment, as in cartpole:env_steps=50000"),
        ("FOLDER ...", "instead of all that: finished runs, or comparisons, to compare as they are"),
    ]
    own = [(key.replace("[]", "NAME,NAME"), text) for key, text in schema.explain(Compare, {}, "compare")]
    usage.print_pages(about, [("the comparison", own), ("its runs", words + run)])
    print("\npython -m rlkit.run algo=NAME env=NAME --help lists the keys of a pair")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    from rlkit.run import guarded

    return guarded(compare, sys.argv[1:] if argv is None else list(argv))


if __name__ == "__main__":
    sys.exit(main())
