"""Texts about a run: its header, its log, its last lines, and the command that resumes it."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from rlkit import ranks, shards
from rlkit.api import Noted, Policy, Writes
from rlkit.cores import cores
from rlkit.installed import installed
from rlkit.paths import back
from rlkit.progress import Progress
from rlkit.recording.log import Listener, Log
from rlkit.recording.writers import tracker
from rlkit.settings import config, places, plugins, trust
from rlkit.settings.assemble import Parts, Settles

UNLIMITED = "no step limit is known: fine if step() ends each; one that does not end stops the run (env.step_limit=N)"


@dataclass(frozen=True)
class Watch:
    """How a run is followed while it trains."""

    quiet: bool = False  # print nothing
    listener: Listener | None = None  # receives each logged iteration; True stops the run


UNWATCHED = Watch()


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """The folder for this rank's log: the run folder, or for other ranks a temporary one."""
    if ranks.first():
        yield folder
        return
    with TemporaryDirectory(prefix="rlkit-rank-") as place:
        ranks.scratch = place
        yield Path(place)


def opened_log(parts: Parts, given: config.Given, folder: Path, progress: Progress, watch: Watch) -> Log:
    """The log of a run, which begins with the header."""
    installed()  # the summary names the files that this run has imported
    run = parts.run
    unit, total = ("iterations", run.iterations) if run.iterations else ("env_steps", run.env_steps)
    if not ranks.first():
        return Log(folder, {}, total or 0, unit, quiet=True)
    sent_to = tracker(run.logger, folder, parts.text)
    with back(given.here):  # where a plug-in's path starts, wherever the environment has gone
        rows = header(parts, given, folder, progress)
    at = progress.iteration
    written = at - bool(progress.meter.unwritten)  # the line of an iteration whose validation failed is to be written
    return Log(folder, rows, total or 0, unit, watch.quiet, at, sent_to, watch.listener, written, progress.logged)


def facts(run: config.Run, given: config.Given, progress: Progress) -> dict[str, object]:
    """The facts of a run for its summary."""
    best = {"best": {"of": progress.best_among, "episodes": progress.best_of}} if progress.best_among else {}
    with back(given.here):  # where a plug-in's path starts
        named = {key: plugins.path_or_module(given.section(key)["name"]) for key in ("algo", "env")}
    return {
        **named,
        "seed": run.seed,
        "env_steps": progress.env_steps,
        "iterations": progress.iteration,
        "finished": not cut_short(progress, run),
        "alarms": progress.doctor.alarms,
        **best,
    }


def cut_short(progress: Progress, run: config.Run) -> bool:
    """Whether a run was interrupted before its end; an interrupt in the last iteration does not count."""
    return progress.interrupted and progress.fraction(run) < 1


def farewell(log: Log, progress: Progress, run: config.Run, given: config.Given) -> None:
    """Print the last lines: the doctor's warnings, and what to do next."""
    if names := [alarm["name"] for alarm in progress.doctor.alarms]:
        log.note(f"warnings of this run: {', '.join(names)} (summary.json and docs/doctor.md say more)")
    if cut_short(progress, run):
        log.command("interrupted; continue with", again(log.folder, given))
    else:
        shown = f"python -m rlkit.play {shlex.quote(str(given.called(log.folder)))}{needed(given)}"
        log.command("everything is in the run folder; look at it", shown)


def again(folder: Path, given: config.Given, repaired: bool = False) -> str:
    """The command that resumes a run, or the call where its environment has no name; `repaired`: of changed code."""
    if str(given.env.get("entry", "")).startswith(places.PYTHON):
        trusted = {"": "", " trust=true": ", trust=True"}.get(needed(given, repaired), ", trust='changed'")
        return f"rlkit.load({str(given.called(folder))!r}, env=...{trusted}).resume()"
    return f"{ranks.launcher()} rlkit.run resume={shlex.quote(str(given.called(folder)))}{needed(given, repaired)}"


def needed(given: config.Given, repaired: bool = False) -> str:
    """The trust that opening this run needs, as a word of a command."""
    return "" if not trust.outside(given) else " trust=changed" if repaired else " trust=true"


def shared_out(policy: Policy) -> str:
    """How the network is sharded; empty where it cannot be."""
    shared = shards.any_in(policy.parameters())
    if ranks.size() == 1 or not isinstance(policy, Writes):
        return ""
    if not shared:
        return "none: each rank holds all weights, gradients and moments"
    part = f"full: each rank holds 1/{ranks.size()} of weights, gradients and moments"
    elsewhere = isinstance(policy, Noted) and policy.note
    return f"{part}; only vLLM has a whole copy" if elsewhere else f"{part}, and a whole copy to write with"


def header(parts: Parts, given: config.Given, folder: Path, progress: Progress) -> dict[str, str]:
    run, policy = parts.run, parts.algo.policy
    learned = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    held = sum(p.numel() for p in policy.parameters())
    there = torch.get_num_threads()
    asked = parts.env.manner(policy) if isinstance(parts.env, Settles) else ""
    return {
        "algorithm": f"{given.algo['name']}: {plugins.summary('algorithms', given.algo['name'])}",
        "environment": f"{given.env['name']}: {plugins.summary('envs', given.env['name'])}",
        "source": parts.env.source,
        **({"episodes": UNLIMITED} if parts.env.kind == "control" and parts.env.longest is None else {}),
        **({"prompts": asked} if asked else {}),
        "model": policy.name,
        **({"engine": policy.note} if isinstance(policy, Noted) and policy.note else {}),
        "parameters": f"{held:,}" + (f", of which {learned:,} are trained" if learned != held else ""),
        "device": f"{parts.env.device}, threads: {there}"
        + (f" (not {run.threads}: this process may use {cores()} cores)" if there < run.threads else "")
        + (f", ranks: {ranks.size()}" if ranks.size() > 1 else ""),
        **({"sharding": sharding} if (sharding := shared_out(policy)) else {}),
        **({"memory": str(parts.memory)} if parts.memory is not None else {}),
        "length": f"{run.iterations} iterations" if run.iterations else f"{run.env_steps:,} steps",
        "seed": str(run.seed),
        "run folder": str(given.called(folder))
        + (f", continued at iteration {progress.iteration}" if progress.iteration else ""),
    }
