"""The functions of the package `rlkit`."""

import os
import re
import shlex
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlkit import session
from rlkit.errors import UserError
from rlkit.fields import Escapes
from rlkit.joining import refuse_several
from rlkit.python.keys import GYM, EnvLike, asked, check_listener, described, found_at, inside, line, named, plain, text
from rlkit.python.run import Run
from rlkit.python.surroundings import alone, undisturbed
from rlkit.recording import checkpoint as checkpoints
from rlkit.recording.log import Listener
from rlkit.settings import config, schema
from rlkit.terminal import muted

if TYPE_CHECKING:
    from rlkit.comparison.numbers import Results
from rlkit.settings.given import Factory, Trust, of_files


def train(
    algo: str | os.PathLike[str],
    env: EnvLike,
    *,
    on_iteration: Listener | None = None,
    quiet: bool = False,
    **keys: object,
) -> Run:
    """Train an algorithm on an environment in this process, as `python -m rlkit.run algo=ALGO env=ENV` does.

    The run and its folder equal those of the command, bit for bit. Ctrl-C finishes the iteration, measures and
    returns the run; a second Ctrl-C stops at once. Torch's threads and global random states are restored afterwards.

    Arguments:
        algo: the name of an algorithm (`rlkit.list_algorithms()`), a dotted module name or a path ending in .py.
        env: likewise for an environment; a Gymnasium id (Acrobot-v1, my_pkg:My-v0); MODULE:NAME of a class or function;
            the class of a Gymnasium environment, a function that creates one, or an object that can be copied.
        on_iteration: called with the metrics of each logged iteration, a dictionary that also holds iteration,
            env_steps and seconds; if it returns True, it stops and measures, unfinished, and `resume` continues it.
        quiet: print nothing.
        keys: those of the command line, with Python values: seed=1, out="runs/mine", **{"policy.hidden": (64, 64)}.

    Returns: the run.

    Raises: UserError for a mistake, with the command's message; Diverged where a loss is not finite.

    Example:
        run = rlkit.train("ppo", "cartpole", seed=1, env_steps=50_000, **{"algo.lr": 1e-3})
    """
    if "resume" in keys:
        raise UserError("resume= continues a run that is there: use rlkit.load(FOLDER).resume()")
    refuse_several()
    check_listener(on_iteration)
    given = asked(algo, env, keys)
    with alone(), undisturbed(), muted(quiet):
        folder, progress = session.carry_out(given, session.Watch(quiet, on_iteration))
    run = Run(folder, factory=given.factory, trusted=True)
    if progress.terminated:
        signal.raise_signal(progress.terminated)  # call the caller's handler: the run only wrote its checkpoint
    return run


def load(
    folder: str | os.PathLike[str],
    trust: Trust = False,
    env: EnvLike | None = None,
    checkpoint: str | None = None,
    **keys: object,
) -> Run:
    """Open a run folder, finished or not.

    Arguments:
        folder: a run folder of `rlkit.train` or of the command.
        trust: allow code from outside rlkit that the folder names, such as a plug-in, a reward or your own environment;
            the author of the folder decides what that code does. "changed" also accepts a file or dataset that was
            changed since the run began.
        env: the class, function or object of the run's environment, if config.yaml cannot name it, such as a class
            defined in a notebook; or the new place of an environment of your own that moved, as in "NEW.py".
        checkpoint: the checkpoint for the policy: latest, best, or another name in the folder checkpoints; None: the
            one that the run itself measures, `best` under measure=best, else `latest`.
        keys: the new places of files that have moved since the run began, as in **{"env.source": "NEW.jsonl"}.

    Returns: the run. Without a checkpoint it still has metrics and can be resumed, but its policy raises an error.

    Raises: UserError where it is not a run folder, its code is not trusted, or something that it needs is missing.

    Example:
        run = rlkit.load("runs/ppo-cartpole-s1")
    """
    if not isinstance(folder, str | os.PathLike):
        raise UserError(f"{folder!r} is not the path of a run folder: give text or a Path")
    given = config.from_folder(os.fspath(folder))
    moved = isinstance(env, str | os.PathLike) and not given.env.get("entry")
    if env is not None and not moved:
        given.factory = factory_of(env, given)
    keys = places_of(keys | ({"env": env} if moved else {}))
    run = Run(Path(folder), checkpoint, given.factory, trust, keys)
    if checkpoints.resumable(run.folder):
        run.policy  # noqa: B018, reports at once what cannot be opened or is not trusted
    else:
        config.at_new_places(os.fspath(folder), line(keys, given.factory, trust))
    return run


def places_of(keys: dict[str, object]) -> dict[str, object]:
    """Keys that may say where files of a run lie now; others are refused."""
    if strange := [key for key in keys if not of_files(key)]:
        raise UserError(f"{strange[0]}= is no key of a file that may have moved: leave it out, or give it to resume()")
    return keys


def factory_of(env: EnvLike, given: config.Given) -> Factory:
    """The factory of an environment that is given for a run folder."""
    if not given.env.get("entry"):
        raise UserError("env= is for a run whose environment was given in Python, and config.yaml names this one's")
    if isinstance(env, str | os.PathLike):
        raise UserError(f"env={os.fspath(env)} is a name: give the class, function or object that the run was made on")
    section, factory = described(env)
    one, other = (last_name(entry) for entry in (given.env["entry"], section["entry"]))
    if one != other and not given.env["entry"].startswith("<"):
        raise UserError(f"env= is {section['entry']}, and the run was made on {given.env['entry']}: give that")
    return factory or found_at(section["entry"])


def last_name(entry: str) -> str:
    """`Walk` of my_pkg.envs:Walk and of <Walk, given in Python>."""
    return re.split(r"[:.]", entry.strip("<>").partition(",")[0])[-1]


@dataclass(frozen=True)
class Comparison:
    """The statistics of several runs; `pandas.DataFrame(comparison.scores)` gives a table."""

    folder: Path  # contains index.html (the page) and runs/ (the run folders)
    results: "Results"  # all numbers, as in results.json
    missing: list[str]  # one sentence for each missing run

    @property
    def scores(self) -> list[dict[str, object]]:
        """One row for each algorithm and environment: runs, mean, iqm with its 95 % interval, steps, seconds."""
        kept = ("runs", "mean", "iqm", "low", "high", "env_steps", "seconds")
        return [
            {"env": env, "algo": algo, "metric": found["metric"], **{key: x for key, x in cell.items() if key in kept}}
            for env, found in self.results["envs"].items()
            for algo, cell in found["algos"].items()
        ]

    @property
    def pairs(self) -> list[dict[str, object]]:
        """One row for each pair of algorithms: P(x > y) with its 95 % interval, and the conclusion."""
        kept = ("x", "y", "value", "low", "high", "verdict")
        return [{key: x for key, x in found.items() if key in kept} for found in self.results["improvement"]]

    @property
    def runs(self) -> list[dict[str, object]]:
        """One row for each run: algo, env, seed, score, folder."""
        return [{**run, "folder": str((self.folder / run["folder"]).resolve())} for run in self.results["runs"]]


SEEDS = range(5)  # of a comparison that is given none


def run_comparison(
    algo: str | os.PathLike[str] | Sequence[str],
    env: str | os.PathLike[str] | Factory | Sequence[str | Factory],
    seed: int | str | Iterable[int] = SEEDS,
    *,
    quiet: bool = False,
    **keys: object,
) -> Comparison:
    """Run every algorithm on every environment with every seed, as `python -m rlkit.compare` does.

    Each run is a separate process. The same call again resumes an interrupted comparison.

    Arguments:
        algo: names, dotted names or .py paths.
        env: names, dotted names or .py paths of environments, Gymnasium ids, and classes or functions in modules: the
            object, or its name as MODULE:NAME.
        seed: the seeds; with the key `seeds`, as many as it says.
        quiet: print nothing.
        keys: seeds, out, workers (runs at a time); the keys of all runs; and **{"NAME:KEY": VALUE} for the runs of one
            algorithm or environment. A list of values makes one row for each value: **{"algo.lr": [1e-3, 3e-3]}. If a
            value is itself a list, give a list of lists: **{"policy.hidden": [(64, 64), (256, 256)]}.

    Returns: the statistics.

    Raises: UserError for a mistake; KeyboardInterrupt after an interrupt, when each run has written a checkpoint.

    Example:
        rlkit.run_comparison(algo=["ppo", "grpo"], env=["cartpole"], seed=range(5)).scores
    """
    from rlkit.comparison.conduct import conduct
    from rlkit.comparison.plan import explained, parse

    words = [f"algo={','.join(names('algo', algo))}", *environments(env)]
    words += [] if seed is SEEDS and "seeds" in keys else [f"seed={seeds(seed)}"]
    words += [f"{key}={spelled(key, value, words[1])}" for key, value in keys.items()]
    with undisturbed(), muted(quiet):
        done = conduct(explained(parse(words)), f"python -m rlkit.compare {shlex.join(words)}")
    if done.results is None:
        raise KeyboardInterrupt("call it again to resume from here")
    return Comparison(done.folder.absolute(), done.results, list(done.results["missing"]))


def spelled(key: str, value: object, envs: str) -> str:
    """The value of a key as typed: in a text for a model, which an environment of `env=...` has, \\n is an escape."""
    from rlkit.comparison import plan, rows

    given, bare = plain(value), key.rpartition(":")[2]
    if bare.startswith("env.") and (isinstance(given, list) or (isinstance(given, str) and "\\" in given)):
        plugins = plan.names("env", envs.removeprefix("env=").split(",")).values()
        hint = rows.hint_of(bare, [], list(plugins))
        if any(isinstance(mark, Escapes) for mark in schema.metadata(hint)):
            return schema.typed(schema.validate(bare, given, hint), hint)
    return several(key, given)


def several(key: str, value: object) -> str:
    """The value of a key in the form of the command line; several values are separated, lists by `;`."""
    given = plain(value)
    # In a mapping, a comma belongs to the value.
    if isinstance(given, list) and given and (inside(key) or all(isinstance(part, list) for part in given)):
        return ";".join(text(key, part) for part in given)
    return text(key, given)


def seeds(given: int | str | Iterable[int]) -> str:
    """Seeds in the form of the command line."""
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if strange := [x for x in found if isinstance(x, bool) or not isinstance(x, int | np.integer | str)]:
        raise UserError(f"seed={strange[0]} is not allowed: give whole numbers")
    return ",".join(text("seed", plain(x)) for x in found)


def names(key: str, given: object) -> list[str]:
    """Names of plug-ins. Other objects are refused: the runs are processes of their own, which cannot receive them."""
    found: list[object] = [given]
    if isinstance(given, Iterable) and not isinstance(given, str | type):
        found = list(given)
    return [sendable(key, one) for one in found]


def sendable(key: str, given: object) -> str:
    """The name by which another process finds it: an environment's class or function in a module has one."""
    if isinstance(given, str | os.PathLike):
        return str(os.fspath(given))
    entry = str(described(given)[0]["entry"]) if key == "env" and callable(given) else ""
    if entry and not entry.startswith("<"):
        return entry
    way = "'MODULE:NAME' of a class in a .py file" if key == "env" else "an algorithm's name or the path of its file"
    raise UserError(
        f"{key}={given!r} is not a name, and the runs of a comparison are processes of their own: give {way}"
    )


def environments(env: object) -> list[str]:
    """The words for the environments; a Gymnasium id or MODULE:NAME becomes a key of runs on `gym`."""
    found = [named(name) for part in names("env", env) for name in part.split(",")]
    inners = [{key: value for key, value in section.items() if key != "name"} for section in found]
    problems = ["".join(inner.values()) for inner in inners]  # of one key at most
    ends = {problem: last_name(problem.rpartition("/")[2]) for problem in problems if problem}
    several = sum(map(bool, problems)) > 1
    words, keys = [], []
    for section, inner, problem in zip(found, inners, problems, strict=True):
        name = ends[problem] if several and problem else ""
        if list(ends.values()).count(name) > 1:  # others end alike
            name = re.sub(r"[:/]", ".", problem)
        words.append(f"{name}:{section['name']}" if name else section["name"])
        keys += [f"{name or GYM}:env.{key}={value}" for key, value in inner.items()]
    return [f"env={','.join(words)}", *keys]
