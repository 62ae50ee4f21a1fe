"""The loop: act, credit, remember, learn. It knows no algorithm, and owns the optimiser step."""

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import checkpoint
from rlkit.api import Exhausted, UserError
from rlkit.buffers import split
from rlkit.config import Run
from rlkit.log import Log
from rlkit.policies import generators

LOGGED = 500  # a run is logged this many times at most, however many iterations it has


class Diverged(RuntimeError):
    """A loss, a gradient or a rollout is not finite; the last good checkpoint is kept."""


@dataclass
class Progress:
    """How far a run has come."""

    iteration: int = 0
    env_steps: int = 0
    best: float = -math.inf  # the best validation score so far
    interrupted: bool = False

    def fraction(self, run: Run) -> float:
        done = [self.iteration / run.iterations] if run.iterations else []
        done += [self.env_steps / run.env_steps] if run.env_steps else []
        return min(1.0, max(done))


class Meter:
    """Averages per-element metrics over many batches as tensors; nothing is read back before `read`."""

    def __init__(self) -> None:
        self.watched: list[Tensor] = []  # numbers that are finite as long as the parameters are
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor | int] = {}

    def add(self, metrics: dict[str, Tensor], mask: Tensor | None = None) -> None:
        for name, x in metrics.items():
            x = x.detach()
            count: Tensor | int = x.numel()
            if mask is not None and mask.dim() > 1 and x.shape == mask.shape:
                x, count = x * mask, mask.sum()
            self.sums[name] = x.sum(dtype=torch.float32) + self.sums.get(name, 0.0)
            self.counts[name] = self.counts.get(name, 0) + count

    def read(self) -> dict[str, float]:
        """The averages since the last reading."""
        averages = {name: float(x) / max(float(self.counts[name]), 1.0) for name, x in self.sums.items()}
        self.sums, self.counts = {}, {}
        return averages


def train(algo: Any, env: Any, run: Run, log: Log, progress: Progress) -> Progress:
    """Walk the four rooms until the budget is spent or `progress.interrupted` is set."""
    meter, episodes, clock = Meter(), [], Clock(progress.env_steps)
    while progress.fraction(run) < 1 and not progress.interrupted:
        algo.progress = progress.fraction(run)
        set_learning_rate(algo, progress.iteration)
        try:
            rollout, credited = walk(algo, env, meter)
        except Exhausted as error:
            if not progress.iteration:
                raise
            log.note(f"ended after iteration {progress.iteration}: {error}")
            break
        except UserError:  # such as a reward function that failed: what was learned is kept
            save(log.folder, algo, env, progress)
            raise
        progress.iteration += 1
        progress.env_steps += int(rollout["mask"].sum())
        episodes += finished(env, rollout)
        evaluating = evaluation_is_due(env, run, progress)
        if evaluating or int(progress.fraction(run) * LOGGED) > int(algo.progress * LOGGED):
            metrics = averages(meter, episodes) | clock.speed(progress.env_steps)
            episodes.clear()
            if evaluating:
                metrics |= validate(algo, env, run, log, progress)
                clock.restart()
            log.iteration(progress.iteration, progress.env_steps, metrics)
            log.completions(progress.iteration, credited, env)
        if checkpoint_is_due(run, progress, evaluating, clock):
            save(log.folder, algo, env, progress)
    save(log.folder, algo, env, progress)
    return progress


def walk(algo: Any, env: Any, meter: Meter) -> tuple[TensorDict, TensorDict]:
    """One iteration through the four rooms: what was played, and the same with its credit."""
    if hasattr(algo.policy, "refresh"):
        algo.policy.refresh()  # adopt what was observed so far, before anyone acts on it
    with torch.no_grad():
        rollout = algo.rollout(env)  # act
        credited = algo.credit(rollout)  # credit
        algo.buffer.extend(credited)  # remember
    learn(algo, meter)  # learn
    check_finite(meter, credited)
    return rollout, credited


def evaluation_is_due(env: Any, run: Run, progress: Progress) -> bool:
    """Every `evaluate_every` iterations, and at the end of the run where the env has something to validate on."""
    if run.evaluate_every and progress.iteration % run.evaluate_every == 0:
        return True
    return progress.fraction(run) >= 1 and getattr(env, "splits", {}).get("validation", 1) > 0


def checkpoint_is_due(run: Run, progress: Progress, evaluated: bool, clock: "Clock") -> bool:
    if run.checkpoint_every:
        return progress.iteration % run.checkpoint_every == 0
    return clock.minute_passed() or evaluated


def learn(algo: Any, meter: Meter) -> None:
    """One optimiser step per minibatch; micro-batches only add up its gradient."""
    parameters = [p for group in algo.optimizer.param_groups for p in group["params"]]
    for batch in algo.buffer:
        algo.optimizer.zero_grad()
        total = torch.zeros((), device=batch["mask"].device)
        for part in split(batch, algo.policy.micro_steps):
            loss, metrics = algo.loss(part)
            loss.backward()
            total += loss.detach()
            meter.add(metrics, part["mask"])
        limit = getattr(algo.config, "max_grad_norm", math.inf)
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        algo.optimizer.step()
        meter.watched.append(total + norm)
        meter.add({"loss": total, "grad_norm": norm})


def set_learning_rate(algo: Any, iteration: int) -> None:
    """lr · warm-up · schedule; an algorithm without such fields keeps its optimiser's own."""
    config = algo.config
    if not hasattr(config, "schedule"):
        return
    decay = 1 - (1 - config.lr_end) * algo.progress if config.schedule == "linear" else 1.0
    warm = min(1.0, (iteration + 1) / (getattr(config, "warmup", 0) + 1))
    for group in algo.optimizer.param_groups:
        group["lr"] = config.lr * decay * warm


def finished(env: Any, rollout: TensorDict) -> list[tuple[float, int]]:
    """(return, length) of the episodes that ended in this rollout."""
    if env.kind == "control":
        return list(env.finished)
    if "score" not in rollout.keys():
        return []
    lengths = rollout["mask"].sum(-1).flatten().tolist()
    return list(zip(rollout["score"].flatten().tolist(), lengths, strict=True))


def averages(meter: Meter, episodes: list[tuple[float, int]]) -> dict[str, float]:
    metrics = {f"train/{name}": x for name, x in meter.read().items()}
    if episodes:
        metrics["rollout/return"] = sum(score for score, _ in episodes) / len(episodes)
        metrics["rollout/length"] = sum(length for _, length in episodes) / len(episodes)
    return metrics


def check_finite(meter: Meter, rollout: TensorDict) -> None:
    """Stop before parameters that are not finite are saved, and say where it shows."""
    watched, meter.watched = meter.watched, []
    if not watched or bool(torch.stack(watched).isfinite().all()):
        return
    bad = [f"train/{name}" for name, x in meter.read().items() if not math.isfinite(x)]
    floats = {key: x for key, x in rollout.items() if x.is_floating_point()}
    bad += [f"rollout key {key!r}" for key, x in floats.items() if not bool(x.isfinite().all())]
    raise Diverged(f"not finite: {', '.join(bad)}; checkpoints written before are kept; try a smaller algo.lr")


def validate(algo: Any, env: Any, run: Run, log: Log, progress: Progress) -> dict[str, float]:
    """Measure on the validation split; the best parameters so far are kept as checkpoint `best`."""
    scores = env.evaluate(algo.policy, run.validation_episodes, "validation")
    score = float(scores.score.mean())
    if score > progress.best:
        progress.best = score
        save(log.folder, algo, env, progress, "best")
    return {f"eval/{env.metric}": score, "eval/length": float(scores.length.double().mean())}


class Clock:
    """The pace of training, evaluations left out, and when a minute without a checkpoint has passed."""

    def __init__(self, env_steps: int) -> None:
        self.steps, self.saved = env_steps, time.monotonic()
        self.restart()

    def restart(self) -> None:
        self.began = time.monotonic()

    def speed(self, env_steps: int) -> dict[str, float]:
        pace = (env_steps - self.steps) / max(time.monotonic() - self.began, 1e-9)
        self.steps = env_steps
        self.restart()
        return {"time/env_steps_per_second": pace}

    def minute_passed(self) -> bool:
        if time.monotonic() - self.saved < 60:
            return False
        self.saved = time.monotonic()
        return True


@contextmanager
def interruptible(progress: Progress) -> Iterator[None]:
    """Ctrl-C lets the iteration finish; a second one stops at once."""

    def stop(*_: object) -> None:
        print("\nfinishing this iteration, then measuring; Ctrl-C again stops at once", file=sys.stderr)
        progress.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def save(folder: Path, algo: Any, env: Any, progress: Progress, name: str = "latest") -> None:
    """Everything the run is made of: whatever of the algorithm has a state, the generators, the env, the progress."""
    parts = {key: x.state_dict() for key, x in vars(algo).items() if hasattr(x, "state_dict")}
    numbers = {key: x for key, x in vars(algo).items() if isinstance(x, int | float)}
    drawn = {key: x.get_state() for key, x in generators(algo.policy).items()}
    state = {"parts": parts, "numbers": numbers, "generators": drawn, "env": env.state_dict()}
    checkpoint.save(folder, state | {"progress": vars(progress)}, name)


def restore(folder: Path, algo: Any, env: Any, name: str = "latest") -> Progress:
    """Put a run back where `save` left it."""
    state = checkpoint.load(folder, name)
    for key, part in state["parts"].items():
        getattr(algo, key).load_state_dict(part)
    for key, number in state["numbers"].items():
        setattr(algo, key, number)
    for key, drawn in generators(algo.policy).items():
        drawn.set_state(state["generators"][key])
    env.load_state_dict(state["env"])
    return Progress(**state["progress"] | {"interrupted": False})
