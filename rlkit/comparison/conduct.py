"""Carry a comparison out and report what came of it."""

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlkit.comparison import grid, names, naming, warm
from rlkit.comparison.numbers import Results
from rlkit.comparison.plan import USAGE, Asked, Compare, of_other_seeds, plan
from rlkit.cores import cores
from rlkit.disk import check_same
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.recording.files import prepare_folder, refuse_link, remove, sweep
from rlkit.settings.plugins import short
from rlkit.signals import handled, leaving
from rlkit.terminal import say, warn


@dataclass(frozen=True)
class Conducted:
    """What came of a comparison."""

    folder: Path
    results: Results | None  # what results.json holds; None when it was interrupted
    failed: list[str]  # a sentence for each run that could not be finished


def conduct(asked: Asked, command: str) -> Conducted:
    """Do what was asked for; `command` repeats it."""
    if asked.folders:
        return compare_folders(asked, command)
    jobs, out = plan(asked)
    check_out(out)
    check_report(out)
    if os.path.isfile(out / "search.yaml"):  # which could not go on beside runs of ours
        raise UserError(f"out={out} is a search's folder: give a comparison a folder of its own")
    with grid.alone(out):
        refuse_link(out / "runs")
        prepare_folder(out / "runs")
        refuse_alike(jobs, out)
        for folder in (out, out / "runs"):
            sweep(folder)
        for job in jobs:
            grid.check(job)
        for job in of_other_seeds(jobs):
            grid.refuse_another(job)
        names.write(out, jobs)
        missing = carry_out(jobs, asked.compare.workers, out)
        if missing is None:
            return Conducted(out, None, [])
        check_same(out)
        missing |= {job.name: "its folder is not that of a finished run any more" for job in jobs if gone(job, missing)}
        lost = [job for job in jobs if job.name in missing]
        for job in lost:
            say(f"missing: {job.name}: {missing[job.name]}; again with:")
            say(f"  python -m rlkit.run {shlex.join(job.command())}")
        shown = naming.titled([(job.algo, column(job), str(job.config["env"].get("source", ""))) for job in jobs])
        names_of = [(shown["algos"][job.algo], shown["envs"][column(job)], job) for job in lost]
        words = [f"{algo} on {env}, seed {job.seed}: {missing[job.name]}" for algo, env, job in names_of]
        found = [folder for folder in own_runs(out) if folder.name not in missing]
        if not found:
            raise UserError(f"no run in {out} could be finished: correct what stopped them, and give the command again")
        return Conducted(out, report(found, out, command, words), words)


def gone(job: grid.Job, missing: Mapping[str, str]) -> bool:
    """Whether a run that was finished has been deleted or changed meanwhile."""
    return job.name not in missing and not grid.summary(job).get("finished")


def refuse_alike(jobs: Sequence[grid.Job], out: Path) -> None:
    """Refuse runs whose names differ in capital letters alone, on a disk where those are one folder."""
    if not (out / "RUNS").exists():
        return
    names: dict[str, str] = {}
    for job in jobs:
        if (other := names.setdefault(job.name.casefold(), job.name)) != job.name:
            raise UserError(
                f"{other} and {job.name} would be one folder, as capital and small letters are the same on this disk: "
                "rename a row, or compare them separately"
            )


def column(job: grid.Job) -> str:
    """What the column of a run is called in the report, where it may be missing."""
    from rlkit.comparison.records import task

    plugin = str(job.config["env"]["name"])
    return job.env if job.env != short(plugin) else task(plugin, job.config["env"])


def carry_out(jobs: list[grid.Job], workers: int | str | None, out: Path) -> dict[str, str] | None:
    """Finish all runs: {name: reason} of those that could not be; None when it was interrupted."""
    from rlkit.comparison.view import by_processes, watch

    stop = out / ".stop"
    for left_over in (stop, *(job.now for job in jobs)):
        remove(left_over)
    states = [grid.state(job) for job in jobs]
    todo = [job for job, state in zip(jobs, states, strict=True) if state != "finished"]
    cut = states.count("cut off")
    done, new = len(jobs) - len(todo), len(todo) - cut
    say(f"{len(jobs)} run{'s' * (len(jobs) > 1)} in {out}: {done} finished, {cut} to continue, {new} to start")

    at_once, away = crew(todo, workers)

    def leave(*_: object) -> None:
        if not stop.exists():  # a closed terminal says it twice, and a cluster may
            grid.ask_to_stop(stop)
            raise KeyboardInterrupt

    try:
        with handled(dict.fromkeys(leaving(), leave)), warm.kept(grid.variables()):
            return watch(todo, by_processes(todo, at_once, stop, away), stop)
    except KeyboardInterrupt:
        grid.ask_to_stop(stop)
        return None


def crew(jobs: Sequence[grid.Job], workers: int | str | None) -> tuple[int, grid.Execute | None]:
    """How many runs there are at a time, and what carries them out where this machine does not."""
    if workers != "ray":
        threads = max((job.config["run"].get("threads", 1) for job in jobs), default=1)  # 0 is one thread here
        return int(workers or max(1, cores() // max(1, threads))), None
    from rlkit.comparison.on_ray import Cluster

    if not jobs:
        return 1, None
    cluster = Cluster()
    return cluster.room(jobs), cluster.execute


def compare_folders(asked: Asked, command: str) -> Conducted:
    """Compare runs that exist already; a comparison's folder stands for its runs."""
    if asked.keys or asked.scoped or asked.compare != Compare(out=asked.compare.out):
        raise UserError(
            f"'{asked.folders[0]}' stands for a folder, and folders are compared as they are: give only out=FOLDER "
            "beside them, or only keys (algo=, env=, ...)"
        )
    given = [home(path) for path in asked.folders if not os.path.isfile(path)]  # runs/* also names the files there
    found = [run for folder in given for run in (own_runs(folder) if grid.is_comparison(folder) else [folder])]
    runs = {path.resolve(): path for path in found}
    name = f"folders-{hashlib.blake2b(repr(sorted(runs)).encode(), digest_size=4).hexdigest()}"
    alone = len(given) == 1 and grid.is_comparison(given[0])
    out = home(asked.compare.out or (given[0] if alone else Path("comparisons", name)))
    check_out(out)
    check_report(out)
    return Conducted(out, report(list(runs.values()), out, command), [])


def check_out(out: Path, what: str = "comparison") -> None:
    if os.path.isfile(out / "config.yaml"):
        raise UserError(f"out={out} is a run's folder: give a {what} a folder of its own")


def check_report(out: Path) -> None:
    """Refuse to write over files of the user's own that are called like those of a report."""
    from rlkit.comparison.report import not_ours

    if name := not_ours(out):
        raise UserError(
            f"out={out} holds {name}, which no comparison wrote and this one would replace: choose another out="
        )


def own_runs(comparison: Path) -> list[Path]:
    """The run folders that lie in a comparison; a link leads out of it, so it is named and left out."""
    found = grid.runs_of(comparison)
    for path in found:
        if path.is_symlink():
            warn(f"left out: {path} is a link: give the folder that it leads to")
    return [path for path in found if not path.is_symlink()]


def report(folders: Sequence[Path], out: Path, command: str, missing: Sequence[str] = ()) -> Results:
    """Write, show and return the statistics of all finished runs; what is none is named and left out."""
    from rlkit.comparison import records
    from rlkit.comparison.copies import once

    found, left_out = [], []
    for folder in folders:
        try:
            found.append(records.read(folder))
        except UserError as error:
            left_out.append(str(error))
            warn(f"left out: {error}")
    if not found:
        raise UserError(f"there is no finished run to compare: write {USAGE}")
    from rlkit.comparison import report as pages

    prepare_folder(out)
    results = pages.write(records.apart(once(found)), out, [*missing, *left_out], command)
    pages.show(results)
    say(f"the page: {out / 'index.html'}")
    return results
