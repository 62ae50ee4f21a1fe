"""The life of a run: start or resume, watch, interrupt, and write the folder."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from filelock import BaseFileLock, FileLock, Timeout

from rlkit import memory, ranks, shards
from rlkit.api import Env, Policy, Writes
from rlkit.disk import check_same, forget_lock, note_lock
from rlkit.errors import Unfinished, UserError, WorkerDied
from rlkit.finite import not_finite
from rlkit.held import check_saved
from rlkit.loop import train
from rlkit.paths import as_written
from rlkit.progress import Progress, lasting_of, restore, restore_policy
from rlkit.recording import checkpoint, outcome
from rlkit.recording.bars import bars
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
from rlkit.recording.writers import check_tracker
from rlkit.seeding import seed_global
from rlkit.settings import config, repeat, run_folder, sections
from rlkit.settings.alike import check_data, check_ranks, data_of
from rlkit.settings.assemble import Parts, assemble
from rlkit.settings.measured import own_checkpoint
from rlkit.signals import interruptible, sheltered
from rlkit.telling import UNWATCHED, again, facts, farewell, opened_log, own_folder
from rlkit.telling import Watch as Watch  # `as`: others take it from here
from rlkit.terminal import say, warn
from rlkit.waiting import unless


def carry_out(given: config.Given, watch: Watch = UNWATCHED) -> tuple[Path, Progress]:
    """Start the requested run, or resume the one that `resume` names. Returns: its folder, and its progress.

    The folder is absolute, as rewards and environments may change the directory. Messages show the path as written.
    """
    watch = replace(watch, quiet=watch.quiet or not ranks.first())
    with sheltered():  # an environment may have processes
        with nullcontext() if watch.quiet else bars("preparing"):  # loading a large model takes a while
            parts = assemble(given)
        try:
            found = begin(parts, given, watch)
        finally:
            if (buffer := lasting_of(parts.algo)) is not None:
                buffer.close()
        parts.env.close()  # after an error its processes may not answer: they end with this process
    return found


def begin(parts: Parts, given: config.Given, watch: Watch) -> tuple[Path, Progress]:
    """Check the parts, and start or resume the run."""
    check_tracker(parts.run.logger)
    check_saved(parts.algo, parts.env, new=given.resume is None)  # before the folder is created
    if bad := not_finite(parts.algo, parts.algo.policy.parameters()):
        raise UserError(
            f"{bad[0]} is not finite before anything is trained: give another policy.model, or train it anew"
        )
    if given.resume is None:  # a run goes on with what it was started with, whatever is refused today
        memory.check_algorithm(parts.algo)
    if parts.memory is not None:
        parts.memory.check()
    if isinstance(parts.algo, Demonstrated):
        parts.algo.check_demonstrations(parts.env)
    data = data_of(parts.env)
    check_ranks(parts, data)
    if given.resume is not None:
        return resume(parts, given, prepare_folder(given.resume, given.here), watch, data)
    folder = Path(ranks.by_first(lambda: str(run_folder.new_folder(parts.run, given))))
    with locked(folder, given):
        ranks.by_first(lambda: start(parts, given, folder))
        ranks.note_begun(os.path.realpath(folder))
        ranks.command = again(folder, given)  # from here on there is something to resume
        return folder, execute(parts, given, folder, Progress(data=data), {}, watch)


@runtime_checkable
class Demonstrated(Protocol):
    """An algorithm that learns from demonstrations."""

    def check_demonstrations(self, env: Env) -> None:
        """Refuse demonstrations that cannot be learned from, before anything is measured."""
        ...


def start(parts: Parts, given: config.Given, folder: Path) -> None:
    """Write the configuration of the run into its new folder."""
    run_folder.check_empty(folder, given)  # another process may have started in the same folder
    write_atomically(folder / "config.yaml", parts.text)


def resume(parts: Parts, given: config.Given, folder: Path, watch: Watch, data: str) -> tuple[Path, Progress]:
    """Resume from the newest checkpoint; a run that was killed before its first checkpoint starts again.

    data: `data_of` the environment.
    """
    with locked(folder, given):
        there = checkpoint.resumable(folder)
        if not there and (folder / "summary.json").is_file():
            raise UserError(f"{folder}: its checkpoints are gone, so it cannot be continued; start a new run")
        before = outcome.before(folder / "before.json", parts.env.metric)
        if gone := there and not before:
            if ranks.first():
                warn(f"{folder / 'before.json'} is gone: the untouched policy is measured again")
            before, _ = outcome.scores(parts.env, parts.algo, parts.run.evaluation_episodes, "before")
        progress = restore(folder, parts.algo, parts.env, tidy=ranks.size() == 1) if there else Progress()
        check_data(parts.env, given, folder, progress.data, data)
        progress.data = data
        ranks.saved = progress.iteration
        check_length(folder, given, parts.run, progress)
        progress.ended &= not repeat.has_length(given.argv)  # with a new length, it looks again for data to learn from
        check_validation(folder, given, parts.run, progress)
        if gone:  # not before the checks: it may be of other rows
            keep_before(folder, before)
        drop_later_best(folder, progress)
        ranks.by_first(lambda: renew(parts, given, folder, progress))
        if not there and not watch.quiet:
            say("no checkpoint was written yet: the run starts again")
        return folder, execute(parts, given, folder, progress, before, watch)


def renew(parts: Parts, given: config.Given, folder: Path, progress: Progress) -> None:
    """Write the new configuration of the run into its own folder."""
    (first, _, held), keys = read_text(folder / "config.yaml").partition("\n"), parts.text.partition("\n")[2]
    if not progress.over(parts.run) or keys != held:
        remove(folder / "summary.json")  # of a shorter or another run: this run is not finished
    line = repeat.changed(first, given.argv, progress.iteration > 0 and repeat.lengths(keys) != repeat.lengths(held))
    write_atomically(folder / "config.yaml", "\n".join([line, keys]))


def drop_later_best(folder: Path, progress: Progress) -> None:
    """Remove a `best` that is later than the resumed iteration: the run finds it again, or a different one."""
    later = ranks.by_first(lambda: checkpoint.drop_beyond(folder, progress.iteration))
    gone = ranks.by_first(lambda: own_checkpoint("best", folder) != "best")
    if later is not None or (gone and progress.best > -math.inf):
        progress.best, progress.best_among = -math.inf, 0
        which = "which is gone" if later is None else f"of iteration {later}"
        if ranks.first():
            say(f"going on from iteration {progress.iteration}: checkpoint best, {which}, is looked for again")


def check_length(folder: Path, given: config.Given, run: config.Run, progress: Progress) -> None:
    """Refuse a length that the run has passed: its config.yaml would describe a run that never was.

    The run's own length may be given again: its last iteration may have exceeded it by some steps.
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
    """Refuse new validation keys for a run that has ended: its config.yaml would describe a different run."""
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
    """Lock a run folder against other processes; the system releases the lock when the process ends in any way."""
    with as_written(folder, given.called(folder)):
        refuse_link(folder / ".lock")
        lock = FileLock(folder / ".lock")
        try:
            ranks.by_first(lambda: occupy(lock, folder))
            ranks.saved, ranks.command = 0, "" if given.resume is None else again(folder, given)
            yield
        except (KeyboardInterrupt, WorkerDied) as error:  # the second Ctrl-C
            raise type(error)("; ".join([*map(str, error.args), f"continue with: {again(folder, given)}"])) from None
        except Unfinished as error:
            command = again(folder, given, repaired=error.repaired)
            raise UserError(f"{error}; fix it, then resume with: {command}") from error
        finally:
            forget_lock(folder / ".lock")
            lock.release()


def occupy(lock: BaseFileLock, folder: Path) -> None:
    """Lock a run folder, and remove files that a killed process left."""
    acquire(lock, folder)
    note_lock(folder / ".lock")
    tidy(folder)
    if ranks.size() > 1 and checkpoint.resumable(folder):
        checkpoint.load(folder, tidy=True)  # the other ranks read the remaining files


def acquire(lock: BaseFileLock, folder: Path) -> None:
    try:
        lock.acquire(timeout=1)  # a process that only checks the lock holds it for a moment
    except Timeout:
        raise UserError(f"{folder} is being written by another process: wait until it ends, or stop it first") from None
    except (OSError, NotImplementedError) as error:  # a network disk without locks, or a folder in the file's place
        raise UserError(
            f"{folder} cannot be locked: {why(error)}; give a folder on a disk whose files can be locked, such as /tmp"
        ) from None


def execute(
    parts: Parts, given: config.Given, folder: Path, progress: Progress, before: outcome.Evaluation, watch: Watch
) -> Progress:
    """Measure, train, measure again, and write the results."""
    run, algo, env, episodes = parts.run, parts.algo, parts.env, parts.run.evaluation_episodes
    with (
        interruptible(progress),
        own_folder(folder) as own,
        opened_log(parts, given, own, progress, watch) as log,
    ):
        with unless(lambda: progress.terminated and ranks.size() == 1):  # several ranks wait for each other
            if not before:
                before = outcome.measure(env, algo, episodes, log, "before")
                keep_before(folder, before)
        log.beside = {"eval/ceiling": before["ceiling"]["mean"]} if "ceiling" in before else {}
        if not progress.iteration:  # else resume has restored them
            seed_global(env.seed, "train")
        progress = train(algo, env, run, log, progress) if before else progress
        asked = ranks.most(progress.terminated, progress.interrupted)  # a signal may have reached only some ranks
        progress.terminated, progress.interrupted = asked[0], bool(asked[1])
        log.bar.stop()
        if progress.terminated:
            log.command(f"stopped at iteration {progress.iteration}; continue with", again(folder, given))
            return progress
        if run.measure == "best" and progress.best > -math.inf:
            restore_policy(folder, algo, env, "best")
        untouched = {"after": before["before"]} if progress.interrupted and not progress.iteration else {}
        evaluation = before | (untouched or outcome.measure(env, algo, episodes, log, "after"))
        ranks.by_first(lambda: check_same(folder))
        write_models(algo.policy, folder)
        what = env.scored(algo.policy)
        told = outcome.summary(facts(run, given, progress), env, evaluation, what, log.seconds())
        log.summary(told)  # last, as it marks the run as finished
        outcome.report(log, env, evaluation, what)
        farewell(log, progress, run, given)
    progress.measured = True
    return progress


def write_models(policy: Policy, folder: Path) -> None:
    """Save a language model, and its adapters if it has some, in standard formats. The first rank writes."""
    if isinstance(policy, Writes):
        write_model(policy, folder / "model", policy.save)
    if isinstance(policy, Adapted) and policy.lora is not None:
        write_model(policy, folder / "adapter", policy.save_adapter)


def write_model(policy: Policy, folder: Path, save: Callable[[Path], None]) -> None:
    """Fill a folder by `save`; for a sharded network, each rank contributes its shards."""
    if shards.any_in(policy.parameters()):
        ranks.together(lambda: write_folder(folder, save) if ranks.first() else save(folder))
    else:
        ranks.by_first(lambda: write_folder(folder, save))


@runtime_checkable
class Adapted(Protocol):
    """A language model that may have adapters."""

    lora: object | None  # the adapters; None: it has none

    def save_adapter(self, folder: Path) -> None:
        """Write a folder in PEFT's format."""
        ...


def keep_before(folder: Path, before: outcome.Evaluation) -> None:
    """Save the measurement of the untrained policy, so that a resumed run does not repeat it."""
    ranks.by_first(lambda: write_atomically(folder / "before.json", json.dumps(before)))
