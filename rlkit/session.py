"""The life of a run: it starts or goes on, is watched, can be interrupted, and leaves its folder."""

import json
import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from filelock import BaseFileLock, FileLock, Timeout

from rlkit.api import Writes
from rlkit.errors import RewardFailed, UserError
from rlkit.held import check_saved, not_finite
from rlkit.loop import train
from rlkit.paths import as_written
from rlkit.progress import Progress, lasting_of, restore, restore_policy
from rlkit.recording import checkpoint, outcome
from rlkit.recording.files import (
    prepare_folder,
    read_text,
    refuse_link,
    remove,
    tidy,
    why,
    write_atomically,
    write_folder,
)
from rlkit.recording.log import Listener, Log
from rlkit.recording.writers import check_tracker, tracker
from rlkit.settings import config, plugins, repeat, sections, trust
from rlkit.settings.assemble import Parts, Settles, assemble
from rlkit.signals import interruptible, sheltered
from rlkit.terminal import say, warn

UNLIMITED = "no step limit is known; one that does not end stops the run (env.step_limit=N sets one)"


@dataclass(frozen=True)
class Watch:
    """How a run is followed while it goes on."""

    quiet: bool = False  # print nothing
    listener: Listener | None = None  # gets each logged iteration; True stops the run


def carry_out(given: config.Given, watch: Watch = Watch()) -> tuple[Path, Progress]:
    """Start the run that was asked for, or go on with the one that `resume` names: its folder, and how far it came.

    The folder is absolute: a reward or an environment may change the directory. Messages show what was written.
    """
    with sheltered():  # an environment may have processes
        parts = assemble(given)
        try:
            found = begin(parts, given, watch)
        finally:
            if (buffer := lasting_of(parts.algo)) is not None:
                buffer.close()
        parts.env.close()  # where something went wrong, its processes may not answer any more: they end with this one
    return found


def begin(parts: Parts, given: config.Given, watch: Watch) -> tuple[Path, Progress]:
    """Check what is put together, and start the run or go on with it."""
    check_tracker(parts.run.logger)
    check_saved(parts.algo, parts.env)  # before there is a folder
    if bad := not_finite(parts.algo, parts.algo.policy.parameters()):
        raise UserError(
            f"{bad[0]} is not finite before anything is trained: give another policy.model, or train it anew"
        )
    if parts.memory is not None:
        parts.memory.check()
    if given.resume is not None:
        return resume(parts, given, prepare_folder(given.resume, given.here), watch)
    folder = config.new_folder(parts.run, given)
    with locked(folder, given):
        config.check_empty(folder, given)  # another start of the same folder may have come first
        write_atomically(folder / "config.yaml", parts.text)
        return folder, execute(parts, given, folder, Progress(), {}, watch)


def resume(parts: Parts, given: config.Given, folder: Path, watch: Watch) -> tuple[Path, Progress]:
    """Go on from the newest checkpoint; a run that was killed before its first one starts again."""
    with locked(folder, given):
        there = checkpoint.resumable(folder)
        if not there and (folder / "summary.json").is_file():
            raise UserError(f"{folder}: its checkpoints are gone, so it cannot be continued; start a new run")
        before = outcome.before(folder / "before.json")
        if there and not before:
            warn(f"{folder / 'before.json'} is gone: the untouched policy is measured again")
            before, _ = outcome.scores(parts.env, parts.algo, parts.run.evaluation_episodes, "before")
            keep_before(folder, before)
        progress = restore(folder, parts.algo, parts.env, tidy=True) if there else Progress()
        check_length(folder, given, parts.run, progress)
        progress.ended &= not repeat.has_length(given.argv)  # asked for more, it looks again for what to learn from
        check_validation(folder, given, parts.run, progress)
        drop_later_best(folder, progress)
        command = repeat.changed(read_text(folder / "config.yaml").partition("\n")[0], given.argv)
        write_atomically(folder / "config.yaml", "\n".join([command, parts.text.partition("\n")[2]]))
        if not there and not watch.quiet:
            say("no checkpoint was written yet: the run starts again")
        if not progress.over(parts.run):
            remove(folder / "summary.json")  # of a shorter run: this one is not finished
        return folder, execute(parts, given, folder, progress, before, watch)


def drop_later_best(folder: Path, progress: Progress) -> None:
    """A run that was killed after it saved `best` goes on from before: it finds it again, or goes another way."""
    if (later := checkpoint.drop_beyond(folder, progress.iteration)) is not None:
        progress.best, progress.best_among = -math.inf, 0
        say(f"going on from iteration {progress.iteration}: checkpoint best, of iteration {later}, is looked for again")


def check_length(folder: Path, given: config.Given, run: config.Run, progress: Progress) -> None:
    """Refuse a length that the run has passed: its config.yaml would tell of a run that never was.

    The run's own length may be given again: its last iteration may have gone some steps beyond it.
    """
    if not repeat.has_length(given.argv):
        return
    held = sections.read(folder / "config.yaml").get("run", {})
    found = {"iterations": (run.iterations, progress.iteration), "env_steps": (run.env_steps, progress.env_steps)}
    for key, (length, done) in found.items():
        if length is not None and length < done and length != held.get(key):
            raise UserError(
                f"{key}={length} is less than the {done} that {folder} has done: give at least {done}, or start a new "
                "run for a shorter one"
            )


def check_validation(folder: Path, given: config.Given, run: config.Run, progress: Progress) -> None:
    """Refuse to change how a run is validated that has nothing left to do: its config.yaml would tell of another."""
    if not progress.over(run):
        return
    held, now = sections.read(folder / "config.yaml").get("run", {}), asdict(run)
    for key in map(repeat.key, given.argv):
        if key in repeat.VALIDATION and now[key] != held.get(key):
            raise UserError(
                f"{key}={'none' if now[key] is None else now[key]} does nothing: {folder} is at its end; leave it out, "
                "or give a longer length beside it"
            )


@contextmanager
def locked(folder: Path, given: config.Given) -> Iterator[None]:
    """Keep a second process out of a run folder; the system opens the lock again when the process ends, however."""
    with as_written(folder, given.called(folder)):
        refuse_link(folder / ".lock")
        lock = FileLock(folder / ".lock")
        acquire(lock, folder)
        try:
            tidy(folder)
            yield
        except KeyboardInterrupt:  # the second Ctrl-C
            raise KeyboardInterrupt(f"continue with: {again(folder, given)}") from None
        except RewardFailed as error:
            raise UserError(f"{error}; mend it, then continue with: {again(folder, given, mended=True)}") from error
        finally:
            lock.release()


def acquire(lock: BaseFileLock, folder: Path) -> None:
    try:
        lock.acquire(timeout=1)  # who only looks whether it is locked holds it for a moment
    except Timeout:
        raise UserError(f"{folder} is being written by another process: wait until it ends, or stop it first") from None
    except (OSError, NotImplementedError) as error:  # a network disk without locks, a folder in its place
        raise UserError(
            f"{folder} cannot be locked: {why(error)}; give a folder on a disk whose files can be locked, such as /tmp"
        ) from None


def execute(
    parts: Parts, given: config.Given, folder: Path, progress: Progress, before: outcome.Evaluation, watch: Watch
) -> Progress:
    """Measure, train, measure again and write what came of it."""
    run, algo, env, episodes = parts.run, parts.algo, parts.env, parts.run.evaluation_episodes
    with interruptible(progress), opened_log(parts, given, folder, progress, watch) as log:
        if not before:
            before = outcome.measure(env, algo, episodes, log, "before")
            keep_before(folder, before)
        if "ceiling" in before:
            log.beside = {"eval/ceiling": before["ceiling"]["mean"]}
        progress = train(algo, env, run, log, progress)
        log.bar.stop()
        if progress.terminated:
            log.command(f"stopped at iteration {progress.iteration}; continue with", again(folder, given))
            return progress
        if run.measure == "best" and progress.best > -math.inf:
            restore_policy(folder, algo, env, "best")
        untouched = progress.interrupted and not progress.iteration
        measured = {"after": before["before"]} if untouched else outcome.measure(env, algo, episodes, log, "after")
        evaluation = {**before, **measured}
        if isinstance(algo.policy, Writes):
            write_folder(folder / "model", algo.policy.save)
        if isinstance(algo.policy, Adapted) and algo.policy.lora is not None:
            write_folder(folder / "adapter", algo.policy.save_adapter)
        what = env.scored(algo.policy)
        told = outcome.summary(facts(run, given, progress), env, evaluation, what, log.seconds())
        log.summary(told)  # last: the run is finished
        outcome.report(log, env, evaluation, what)
        farewell(log, progress, run, given)
    progress.measured = True
    return progress


@runtime_checkable
class Adapted(Protocol):
    """A language model that may have adapters beside its weights."""

    lora: object | None  # which; none: it has none

    def save_adapter(self, folder: Path) -> None:
        """Write a folder in PEFT's format."""
        ...


def keep_before(folder: Path, before: outcome.Evaluation) -> None:
    """The measurement of the untouched policy is not repeated when the run goes on."""
    write_atomically(folder / "before.json", json.dumps(before))


def opened_log(parts: Parts, given: config.Given, folder: Path, progress: Progress, watch: Watch) -> Log:
    """The log of a run whose first lines are its header."""
    run = parts.run
    unit, total = ("iterations", run.iterations) if run.iterations else ("env_steps", run.env_steps)
    sent_to = tracker(run.logger, folder, parts.text)
    rows = header(parts, given, folder, progress)
    return Log(folder, rows, total or 0, unit, watch.quiet, progress.iteration, sent_to, watch.listener)


def facts(run: config.Run, given: config.Given, progress: Progress) -> dict[str, object]:
    """What a summary says of the run itself."""
    best = {"best": {"of": progress.best_among, "episodes": progress.best_of}} if progress.best_among else {}
    return {
        "algo": given.algo["name"],
        "env": given.env["name"],
        "seed": run.seed,
        "env_steps": progress.env_steps,
        "iterations": progress.iteration,
        "finished": not cut_short(progress, run),
        "alarms": progress.doctor.alarms,
        **best,
    }


def cut_short(progress: Progress, run: config.Run) -> bool:
    """Whether a run was interrupted before its end; in its last iteration there is nothing left to cut."""
    return progress.interrupted and progress.fraction(run) < 1


def farewell(log: Log, progress: Progress, run: config.Run, given: config.Given) -> None:
    """The last lines: what the doctor warned of, and what to do next."""
    if names := [alarm["name"] for alarm in progress.doctor.alarms]:
        log.note(f"warnings of this run: {', '.join(names)} (summary.json and docs/doctor.md say more)")
    if cut_short(progress, run):
        log.command("interrupted; continue with", again(log.folder, given))
    else:
        shown = f"python -m rlkit.play {shlex.quote(str(given.called(log.folder)))}{needed(given)}"
        log.command("everything is in the run folder; look at it", shown)


def again(folder: Path, given: config.Given, mended: bool = False) -> str:
    """The command that continues a run; `mended`: after its code was changed."""
    return f"python -m rlkit.run resume={shlex.quote(str(given.called(folder)))}{needed(given, mended)}"


def needed(given: config.Given, mended: bool = False) -> str:
    """The trust that opening a run of one's own asks for."""
    return "" if not trust.outside(given) else " trust=changed" if mended else " trust=true"


def header(parts: Parts, given: config.Given, folder: Path, progress: Progress) -> dict[str, str]:
    run, policy = parts.run, parts.algo.policy
    learned = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    held = sum(p.numel() for p in policy.parameters())
    asked = parts.env.manner(policy) if isinstance(parts.env, Settles) else ""
    return {
        "algorithm": f"{given.algo['name']}: {plugins.summary('algorithms', given.algo['name'])}",
        "environment": f"{given.env['name']}: {plugins.summary('envs', given.env['name'])}",
        "source": parts.env.source,
        **({"episodes": UNLIMITED} if parts.env.kind == "control" and parts.env.longest is None else {}),
        **({"prompts": asked} if asked else {}),
        "model": policy.name,
        "parameters": f"{held:,}" + (f", of which {learned:,} are trained" if learned != held else ""),
        "device": f"{parts.env.device}, threads: {torch.get_num_threads()}",
        **({"memory": str(parts.memory)} if parts.memory is not None else {}),
        "length": f"{run.iterations} iterations" if run.iterations else f"{run.env_steps:,} steps",
        "seed": str(run.seed),
        "run folder": str(given.called(folder))
        + (f", continued at iteration {progress.iteration}" if progress.iteration else ""),
    }
