"""Carries out a search: trials, the best setting as a file, and its scores on fresh seeds beside the default."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rlkit
from rlkit.comparison import conduct as comparing
from rlkit.comparison import grid, plan
from rlkit.comparison.numbers import Results
from rlkit.errors import UserError
from rlkit.recording.files import is_file, prepare_folder, refuse_link, sweep, write_atomically
from rlkit.recording.log import table
from rlkit.settings import config, sections, strict_yaml, trust
from rlkit.settings.plugins import short
from rlkit.settings.sections import Section, Sections
from rlkit.terminal import say
from rlkit.tuning.problem import Keys, Problem, Tune
from rlkit.tuning.search import carry_out
from rlkit.tuning.study import Study, Trial, installed, shown

SETTINGS, BEST, FRESH = "search.yaml", "best.yaml", "fresh"
SHOWN = 5  # trials shown in the table
USUAL, TUNED = "default", "tuned"


@dataclass(frozen=True)
class Conducted:
    """The result of a search."""

    folder: Path
    best: Trial | None  # None: the search was interrupted
    command: str  # the command that trains with the best setting
    results: Results | None  # on the fresh seeds; None: interrupted, or no trial was better than the default
    failed: Sequence[str] = ()  # a sentence for each run on a fresh seed that could not be finished


def conduct(tune: Tune, keys: Keys, command: str) -> Conducted:
    """Carry out a search; the same call again resumes it."""
    installed()
    problem = Problem(tune, keys)
    problem.fresh()
    out = problem.out()
    comparing.check_out(out, "search")
    if os.path.isdir(out / "runs"):
        raise UserError(f"out={out} is a comparison's folder: give a search a folder of its own")
    if is_file(out / BEST) and not os.path.lexists(out / SETTINGS):  # a search writes its settings first
        raise UserError(
            f"out={out} holds {BEST}, which no search wrote and this one would replace: choose another out="
        )
    with grid.alone(out, "search"):
        at_once, away = comparing.crew(problem.jobs(0, {}, out / "trials"), tune.workers)
        settings, workers = settled(problem, out, at_once)
        study = Study(out, problem.space, tune.sampler, tune.pruner, tune.sampler_seed)
        for name in ("trials", FRESH):
            refuse_link(out / name)
        check_default(problem, out)
        prepare_folder(out / "trials")
        for folder in (out, out / "trials"):
            sweep(folder)
        write_atomically(out / SETTINGS, settings)
        announce(problem, study, out)
        if not carry_out(problem, study, out / "trials", tune.trials, workers, away) or study.best is None:
            return Conducted(out, None, "", None)
        best = study.best
        tell(study, problem)
        code = " trust=true" if trust.outside(problem.given) else ""
        again = f"python -m rlkit.run {shlex.quote(f'config={out / BEST}')}{code}"
        which = f"trial {best.number} of {len(study.trials)}, {best.value:.4g} on validation"
        heads = [f"{which if best.number else 'the default'}. Found by: {command}", again]
        write(problem, best, out / BEST, heads)
        fresh = measured(problem, best, out, "ray" if away else workers)
        return Conducted(out, best, again, fresh.results, fresh.failed)


def settled(problem: Problem, out: Path, at_once: int) -> tuple[str, int]:
    """The search as text, which must equal that of an earlier call; and the number of runs at a time.

    at_once: for a new search; a resumed one keeps its number, even on a cluster of another size.

    Raises: UserError that names the first difference.
    """
    tune, path = problem.tune, out / SETTINGS
    held = sections.read(path) if is_file(path) else {}
    noted = held.get("search", {}).get("workers")
    there = noted if type(noted) is int and noted > 0 else at_once  # anything else is refused below
    workers = there if tune.workers in (None, "ray") else tune.workers
    order = [*held.get("ranges", {}), *problem.space]  # in which Optuna draws: that of the first call
    problem.space = {key: problem.space[key] for key in dict.fromkeys(order) if key in problem.space}
    kept = {key: getattr(tune, key) for key in ("algo", "env", "runs", "sampler", "pruner", "sampler_seed")}
    now: Sections = {
        "search": {**kept, "workers": workers},
        "keys": dict(problem.fixed),
        "ranges": {key: str(found) for key, found in problem.space.items()},
    }
    for name, keys in now.items() if held else ():
        before: Section = held.get(name, {})
        for key in {**keys, **before}:
            if keys.get(key) != before.get(key):
                was, asked = before.get(key), keys.get(key)
                raise UserError(f"{out} holds another search: {key}={was}, asked {key}={asked}; choose another out=")
    return strict_yaml.dump(now), int(workers)


def check_default(problem: Problem, out: Path) -> None:
    """Refuse to go on where the default would be another run by now: a file that the keys name has changed, say.

    Raises: UserError, naming the first key or file that differs.
    """
    for job in problem.jobs(0, {}, out / "trials"):
        if (found := grid.another(job)) is not None:
            raise UserError(f"{found[0]} has changed since {out} was begun; choose another out=")


def announce(problem: Problem, study: Study, out: Path) -> None:
    """Print what will be done, and the folder of the results."""
    trials, runs = problem.tune.trials, problem.tune.runs
    there = min(len(study.trials), trials)
    each = f"{runs} runs each" if runs > 1 else "one run each"
    say(f"{trials} trials, {each}, in {out}: {there} finished, {trials - there} to do")
    for key, found in problem.space.items():
        say(f"  {key}={found}")


def tell(study: Study, problem: Problem) -> None:
    """Print the best trials, and how many trials finished, were pruned and failed."""
    finished = sorted((t for t in study.trials if t.value is not None), key=lambda t: (-(t.value or 0), t.number))
    rows = [[shown(t.chosen) or "the default", f"{t.value:.4g}", str(t.number)] for t in finished[:SHOWN]]
    ends = [trial.end for trial in study.trials]
    say(f"\n{ends.count('complete')} trials finished, {ends.count('pruned')} pruned, {ends.count('failed')} failed")
    table("the best on validation", ["", f"mean of {problem.tune.runs}", "trial"], rows)


def write(problem: Problem, best: Trial, path: Path, heads: Sequence[str]) -> None:
    """Write the keys of a setting as a file for `rlkit.run config=FILE`, below some lines of comment."""
    resolved = strict_yaml.load(problem.checked(best.chosen, of_trial=False).text)
    told = {**problem.fixed, **best.chosen}
    named = config.Given(algo={"name": resolved["algo"]["name"]}, env={"name": resolved["env"]["name"]})
    file = config.from_file(Path(told["config"]), named) if "config" in told else named
    keys = [key.split(".") if "." in key else ["run", key] for key in told if key != "config"]
    keys += [[section, *key.split(".")] for section in config.SECTIONS for key in file.section(section)]
    if ["run", "measure"] in keys and resolved["run"]["measure"] == "best":
        keys.append(["run", "evaluations"])  # a search makes ten, and a run alone one
    if ["algo", "preset"] in keys:  # the keys of the preset replace it
        keys = [key for key in keys if key != ["algo", "preset"]] + [["algo", key] for key in problem.given.algo]
    kept: Sections = {"algo": {"name": resolved["algo"]["name"]}, "env": {"name": resolved["env"]["name"]}}
    for section, key, *_ in keys:
        if section != "run" or key not in (*grid.PLACE, "seed"):
            kept.setdefault(section, {})[key] = resolved[section][key]
    # It must not begin as a run's config.yaml does: there, a key that is absent is older than the key.
    comment = "".join(f"# {line}\n" for line in (f"written by rlkit {rlkit.__version__}", *heads))
    write_atomically(path, comment + strict_yaml.dump(kept))


def measured(problem: Problem, best: Trial, out: Path, workers: int | str) -> comparing.Conducted:
    """Scores of the best setting and of the default, on seeds that no trial used."""
    if not best.number:
        say(f"no trial was better on validation than the default, which {out / BEST} holds")
        return comparing.Conducted(out, None, [])
    say(f"the best setting: {out / BEST}; now on fresh seeds, beside the default:")
    plugins = {name: line.plugin for name, line in problem.line.items()}
    tuned = TUNED if TUNED not in map(short, plugins.values()) else f"{TUNED}_setting"  # NAME:KEY may mean a plug-in
    words = [f"algo={USUAL}:{plugins['algo']},{tuned}:{plugins['algo']}", f"env={plugins['env']}"]
    words += [f"seed={','.join(map(str, problem.fresh()))}", *(f"{key}={text}" for key, text in problem.fixed.items())]
    words += [
        *(f"{tuned}:{key}={text}" for key, text in best.chosen.items()),
        f"workers={workers}",
    ]
    there, _ = plan.plan(plan.parse([*words, f"out={out / FRESH}"]))
    # by what was the best of fewer trials
    held = any(grid.another(job) for job in (*there, *plan.of_other_seeds(there)))
    place = out / (f"{FRESH}-{best.number}" if held else FRESH)
    refuse_link(place)
    words.append(f"out={place}")
    return comparing.conduct(plan.parse(words), f"python -m rlkit.compare {shlex.join(words)}")
