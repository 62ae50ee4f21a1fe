"""Train one algorithm on one environment: python -m rlkit.run algo=NAME env=NAME [key=value ...]"""

import io
import json
import math
import os
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import rlkit
from rlkit import checkpoint, config, plugins, usage
from rlkit.api import Scores, UserError
from rlkit.checkpoint import write_atomically
from rlkit.evaluate import scored, summarize
from rlkit.log import Log
from rlkit.train import Diverged, Progress, interruptible, restore, train

# The length of a run that says nothing about it.
LENGTH: dict[str, dict[str, Any]] = {"control": {"env_steps": 100_000}, "text": {"iterations": 60}}


@dataclass
class Parts:
    """One algorithm and one environment, put together."""

    run: config.Run
    algo: Any
    env: Any
    text: str  # the resolved configuration


def assemble(given: config.Given) -> Parts:
    """Load the plug-ins, validate their configurations and build them; what cannot be is refused here."""
    run = config.build(config.Run, given.run, "run")
    algorithm = plugins.load("algorithms", given.algo["name"])
    environment = plugins.load("envs", given.env["name"])
    env_config = config.build(environment.Config, given.env, "env")
    algo_config = config.build(algorithm.Config, given.algo, "algo")
    env = environment.make(env_config, run.seed, torch.device("cpu"))
    env.device = device(run.device, env.kind)
    check_splits(env, run)
    if run.iterations is None and run.env_steps is None:
        run = replace(run, **LENGTH[env.kind])
    torch.set_num_threads(run.threads or threads(env.kind))
    network: Any = config.build(network_class(env.kind), given.policy, "policy")
    algo = algorithm.make(algo_config, env, network)
    if hasattr(env, "check"):
        env.check(algo.policy)  # does every prompt fit?
    return Parts(run, algo, env, config.resolved(given, run, algo_config, env_config, network))


def network_class(kind: str) -> type:
    """The dataclass behind the `policy.` keys; text code is loaded for text only."""
    if kind == "text":
        from rlkit.language.model import Model

        return Model
    from rlkit.policies import Network

    return Network


def check_splits(env: Any, run: config.Run) -> None:
    """Text: what is to be measured on must be there before anything is trained."""
    splits = getattr(env, "splits", {"validation": 1, "test": 1})
    if not splits["test"]:
        raise UserError(f"{env.source}: no test problems are left to measure on; set env.test, or give a larger file")
    if run.evaluate_every and not splits["validation"]:
        raise UserError("evaluate_every needs validation problems and there are none: set evaluate_every=0")


def threads(kind: str) -> int:
    """One for small control networks, which only wait for each other; all that OpenMP may use for text."""
    return 1 if kind == "control" else int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count() or 1


def device(name: str, kind: str) -> torch.device:
    """`auto` takes a GPU for text where there is one; small control networks are faster on the CPU."""
    if name == "auto":
        return torch.device("cuda" if kind == "text" and torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
        if found.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError(f"nothing is computed on {found.type}")
    except (RuntimeError, AssertionError):
        raise UserError(f"device={name} cannot be used here: give auto, cpu, or cuda where there is a GPU") from None
    return found


def run(argv: list[str]) -> int:
    given = config.read(argv)
    if given.help or not argv:
        return show_help(given)
    parts = assemble(given)
    if given.resume is None:
        folder, progress = config.new_folder(parts.run, given), Progress()
        before: dict[str, Any] = {}
        write_atomically(folder / "config.yaml", parts.text)
    else:
        folder = config.prepare_folder(given.resume)
        there = any((folder / "checkpoints").glob("[!.]*.safetensors"))
        if not there and (folder / "summary.json").is_file():
            raise UserError(f"{folder}: its checkpoints are gone, so it cannot be continued; start a new run")
        progress = restore(folder, parts.algo, parts.env) if there else Progress()  # killed before the first one
        before = json.loads((folder / "before.json").read_text()) if (folder / "before.json").is_file() else {}
        command = (folder / "config.yaml").read_text().partition("\n")[0]
        write_atomically(folder / "config.yaml", "\n".join([command, parts.text.partition("\n")[2]]))
    return execute(parts, given, folder, progress, before)


def execute(parts: Parts, given: config.Given, folder: Path, progress: Progress, before: dict[str, Any]) -> int:
    run, algo, env = parts.run, parts.algo, parts.env
    unit, total = ("iterations", run.iterations) if run.iterations else ("env_steps", run.env_steps)
    logging = Log(folder, header(parts, given, folder), total or 0, unit, resumed_at=progress.iteration)
    with interruptible(progress), logging as log:
        if not before:
            before = measure(parts, log, "before")
            write_atomically(folder / "before.json", json.dumps(before))
        if "ceiling" in before:
            log.beside = {"eval/ceiling": before["ceiling"]["mean"]}
        progress = train(algo, env, run, log, progress)
        log.bar.stop()
        if run.measure == "best" and progress.best > -math.inf:
            best = checkpoint.load(folder, "best")["parts"]["policy"]
            algo.policy.load_state_dict(best)
        untouched = progress.interrupted and not progress.iteration
        after = {"after": before["before"]} if untouched else measure(parts, log, "after")
        evaluation = {**before, **after}
        log.summary(summary(parts, given, progress, evaluation, log.seconds()))
        if hasattr(algo.policy, "save"):
            algo.policy.save(folder / "model")
        report(log, env, evaluation, scored(env, algo.policy))
        if progress.interrupted:
            log.note(f"interrupted; continue with: python -m rlkit.run resume={folder}")
        else:
            log.note(f"everything is in {folder}")
    return 0


def header(parts: Parts, given: config.Given, folder: Path) -> dict[str, str]:
    run, policy = parts.run, parts.algo.policy
    learned = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    held = sum(p.numel() for p in policy.parameters())
    return {
        "algorithm": f"{given.algo['name']}: {plugins.summary('algorithms', given.algo['name'])}",
        "environment": f"{given.env['name']}: {plugins.summary('envs', given.env['name'])}",
        "source": getattr(parts.env, "source", ""),
        "model": getattr(policy, "name", type(policy).__name__),
        "parameters": f"{held:,}" + (f", of which {learned:,} are trained" if learned != held else ""),
        "device": f"{parts.env.device}, threads: {torch.get_num_threads()}",
        "length": f"{run.iterations} iterations" if run.iterations else f"{run.env_steps:,} steps",
        "seed": str(run.seed),
        "run folder": str(folder),
    }


def measure(parts: Parts, log: Log, when: str) -> dict[str, Any]:
    """Evaluate greedily on the test split, which nothing in the run looks at; text also shows samples."""
    env, policy, episodes = parts.env, parts.algo.policy, parts.run.evaluation_episodes
    log.note(f"measuring {when} training, on the test split ...")
    scores: Scores = env.evaluate(policy, episodes, "test")
    found = {when: summarize(env.metric, scores, True)}
    if scores.samples:
        log.show_samples(f"{when}: greedy answers", scores.samples[:3])
    if hasattr(env, "exact"):
        found[when]["exact"] = env.exact(policy, getattr(parts.algo.config, "gamma", 0.99))
    if when == "before" and getattr(env, "ceiling", None) and not hasattr(policy, "judge"):
        reasoned = env.evaluate(policy, episodes, "test", forbid_first=env.ceiling)
        found["ceiling"] = summarize(env.metric, reasoned, True)
        log.note(f"ceiling {found['ceiling']['mean']:.3f}: the untouched model when it may not answer at once")
    return found


def report(log: Log, env: Any, evaluation: dict[str, Any], unit: str) -> None:
    """The small table at the end: before → after with 95 % intervals."""
    shape = "{:.3f}" if all(abs(e["mean"]) < 10 for e in evaluation.values()) else "{:.1f}"

    def cells(name: str, e: dict[str, Any]) -> list[str]:
        low, high = shape.format(e["low"]), shape.format(e["high"])
        return [name, shape.format(e["mean"]), f"{low} to {high}", f"{e['length']:.0f}"]

    rows = [cells(name, evaluation[name]) for name in ("before", "ceiling", "after") if name in evaluation]
    episodes = evaluation["after"]["episodes"]
    log.table(f"greedy {env.metric} on {episodes} test {unit}", ["", env.metric, "95 %", "length"], rows)
    kinds = evaluation["after"].get("groups", {}) | evaluation["after"].get("kinds", {})
    if kinds:
        names = [name for name in ("before", "ceiling", "after") if name in evaluation]
        both = {name: evaluation[name].get("groups", {}) | evaluation[name]["kinds"] for name in names}
        lines = [[kind, *(f"{both[name][kind]:.2f}" for name in names)] for kind in kinds]
        log.table("accuracy per problem kind", ["kind", *names], lines)
    for name, x in evaluation["after"].get("exact", {}).items():
        log.note(f"exact {name}: {x:.4f}")


def summary(
    parts: Parts, given: config.Given, progress: Progress, evaluation: dict[str, Any], seconds: float
) -> dict[str, Any]:
    return {
        "algo": given.algo["name"],
        "env": given.env["name"],
        "seed": parts.run.seed,
        "source": getattr(parts.env, "source", given.env["name"]),
        "env_steps": progress.env_steps,
        "iterations": progress.iteration,
        "seconds": round(seconds, 3),
        "device": str(parts.env.device),
        "versions": {"rlkit": rlkit.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "evaluation": evaluation,
        "alarms": [],
    }


def show_help(given: config.Given) -> int:
    policy = None
    if "name" in given.env:
        module = plugins.load("envs", given.env["name"])
        env = module.make(config.build(module.Config, given.env, "env"), 0, torch.device("cpu"))
        policy = network_class(env.kind)
    usage.print_help(given, policy)
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
    except Diverged as error:
        print(f"rlkit: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("rlkit: stopped; resume=FOLDER goes on from the newest checkpoint", file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(run, sys.argv[1:] if argv is None else list(argv))


if __name__ == "__main__":
    sys.exit(main())
