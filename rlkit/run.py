"""Train one algorithm on one environment: python -m rlkit.run algo=NAME env=NAME [key=value ...]"""

import io
import json
import math
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from rlkit import checkpoint, config, outcome, plugins, usage
from rlkit.api import RewardFailed, UserError, Writes
from rlkit.checkpoint import write_atomically
from rlkit.log import Log, tracker
from rlkit.loop import Diverged, train
from rlkit.progress import Progress, restore
from rlkit.settings.assemble import Parts, assemble, network_class


def run(argv: list[str]) -> int:
    given = config.read(argv)
    if given.help or not argv:
        return show_help(given)
    parts = assemble(given)
    if given.resume is None:
        folder = config.new_folder(parts.run, given)
        with locked(folder):
            write_atomically(folder / "config.yaml", parts.text)
            return execute(parts, given, folder, Progress(), {})
    return resume(parts, given, config.prepare_folder(given.resume))


def resume(parts: Parts, given: config.Given, folder: Path) -> int:
    """Go on from the newest checkpoint; a run that was killed before its first one starts again."""
    with locked(folder):
        there = checkpoint.resumable(folder)
        if not there and (folder / "summary.json").is_file():
            raise UserError(f"{folder}: its checkpoints are gone, so it cannot be continued; start a new run")
        progress = restore(folder, parts.algo, parts.env, tidy=True) if there else Progress()
        before = json.loads((folder / "before.json").read_text()) if (folder / "before.json").is_file() else {}
        command = (folder / "config.yaml").read_text(encoding="utf-8").partition("\n")[0]
        write_atomically(folder / "config.yaml", "\n".join([command, parts.text.partition("\n")[2]]))
        if not there:
            print("no checkpoint was written yet: the run starts again")
        for section in given.code:
            if given.code[section] != plugins.fingerprint(getattr(given, section)["name"]):
                print(f"{getattr(given, section)['name']} has changed since the run began", file=sys.stderr)
        if not progress.over(parts.run):
            (folder / "summary.json").unlink(missing_ok=True)  # of a shorter run: this one is not finished
        return execute(parts, given, folder, progress, before)


@contextmanager
def interruptible(progress: Progress) -> Iterator[None]:
    """Ctrl-C lets the iteration finish, and a second one stops at once; SIGTERM asks for a checkpoint and no more."""

    def interrupt(*_: object) -> None:
        print("\nfinishing this iteration, then measuring; Ctrl-C again stops at once", file=sys.stderr)
        progress.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def terminate(*_: object) -> None:
        progress.terminated = True

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process out of a run folder; the system opens the lock again when the process ends, however."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=1)  # who only looks whether it is locked holds it for a moment
    except Timeout:
        raise UserError(f"{folder} is being written by another process: wait until it ends, or stop it first") from None
    try:
        yield
    except KeyboardInterrupt:  # the second Ctrl-C
        raise KeyboardInterrupt(f"continue with: {again(folder)}") from None
    except RewardFailed as error:
        raise UserError(f"{error}; mend it, then continue with: {again(folder)}") from error
    finally:
        lock.release()


def execute(parts: Parts, given: config.Given, folder: Path, progress: Progress, before: dict[str, Any]) -> int:
    run, algo, env, episodes = parts.run, parts.algo, parts.env, parts.run.evaluation_episodes
    unit, total = ("iterations", run.iterations) if run.iterations else ("env_steps", run.env_steps)
    sent_to = tracker(run.logger, folder, parts.text)
    titles = header(parts, given, folder, progress)
    logging = Log(folder, titles, total or 0, unit, resumed_at=progress.iteration, tracker=sent_to)
    with interruptible(progress), logging as log:
        if not before:
            before = outcome.measure(env, algo, episodes, log, "before")
            write_atomically(folder / "before.json", json.dumps(before))
        if "ceiling" in before:
            log.beside = {"eval/ceiling": before["ceiling"]["mean"]}
        progress = train(algo, env, run, log, progress)
        log.bar.stop()
        if progress.terminated:
            log.note(f"stopped at iteration {progress.iteration}; continue with: {again(folder)}")
            return 1
        if run.measure == "best" and progress.best > -math.inf:
            best = checkpoint.load(folder, "best")["parts"]["policy"]
            algo.policy.load_state_dict(best)
        untouched = progress.interrupted and not progress.iteration
        measured = {"after": before["before"]} if untouched else outcome.measure(env, algo, episodes, log, "after")
        evaluation = {**before, **measured}
        if isinstance(algo.policy, Writes):
            checkpoint.write_folder(folder / "model", algo.policy.save)
        what = env.scored(algo.policy)
        told = outcome.summary(run, given, env, progress, evaluation, what, log.seconds())
        log.summary(told)  # last: the run is finished
        outcome.report(log, env, evaluation, what)
        if names := [alarm["name"] for alarm in progress.doctor.alarms]:
            log.note(f"warnings of this run: {', '.join(names)} (summary.json and docs/doctor.md say more)")
        if progress.interrupted:
            log.note(f"interrupted; continue with: {again(folder)}")
        else:
            log.note(f"everything is in {folder}; look at it: python -m rlkit.play {shlex.quote(str(folder))}")
    return 0


def again(folder: Path) -> str:
    """The command that continues a run."""
    return f"python -m rlkit.run resume={shlex.quote(str(folder))}"


def header(parts: Parts, given: config.Given, folder: Path, progress: Progress) -> dict[str, str]:
    run, policy = parts.run, parts.algo.policy
    learned = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    held = sum(p.numel() for p in policy.parameters())
    return {
        "algorithm": f"{given.algo['name']}: {plugins.summary('algorithms', given.algo['name'])}",
        "environment": f"{given.env['name']}: {plugins.summary('envs', given.env['name'])}",
        "source": parts.env.source,
        "model": policy.name,
        "parameters": f"{held:,}" + (f", of which {learned:,} are trained" if learned != held else ""),
        "device": f"{parts.env.device}, threads: {torch.get_num_threads()}",
        "length": f"{run.iterations} iterations" if run.iterations else f"{run.env_steps:,} steps",
        "seed": str(run.seed),
        "run folder": str(folder) + (f", continued at iteration {progress.iteration}" if progress.iteration else ""),
    }


def show_help(given: config.Given) -> int:
    policy, missing = None, ""
    if "name" in given.env:
        module = plugins.load("envs", given.env["name"])
        try:
            env = module.make(config.build(module.Config, given.env, "env"), 0, torch.device("cpu"))
            policy = network_class(env.kind)
        except UserError as error:  # such as a key that must be given
            missing = str(error)
    usage.print_help(given, policy, missing)
    return 0


def guarded(command: Callable[[list[str]], int], argv: list[str]) -> int:
    """A user's mistake is one line and exit code 2; anything else that goes wrong is exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a console that cannot show γ shows a question mark
    try:
        return command(argv)
    except UserError as error:
        print(f"rlkit: {error}", file=sys.stderr)
        return 2
    except (Diverged, FloatingPointError) as error:
        print(f"rlkit: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as stop:
        print("; ".join(["rlkit: stopped", *map(str, stop.args)]), file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(run, sys.argv[1:] if argv is None else list(argv))


if __name__ == "__main__":
    sys.exit(main())
