"""The loop: act, credit, remember, learn. It knows no algorithm, and owns the optimiser step."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from rlkit import checkpoint
from rlkit.api import Exhausted, RewardFailed
from rlkit.buffers import split
from rlkit.config import Run
from rlkit.doctor import Doctor
from rlkit.errors import Diverged
from rlkit.log import Log
from rlkit.meter import Clock, Meter, averages
from rlkit.policies import generators

LOGGED = 500  # a run is logged this many times at most, however many iterations it has,
EARLY = 16  # and in each of its first iterations, so that what is wrong shows at once


@dataclass
class Progress:
    """How far a run has come, and what of it was not yet logged."""

    iteration: int = 0
    env_steps: int = 0
    best: float = -math.inf  # the best validation score so far
    ended: bool = False  # nothing was left to learn from
    meter: Meter = field(default_factory=Meter)
    doctor: Doctor = field(default_factory=Doctor)
    interrupted: bool = False  # by Ctrl-C: what was learned is measured
    terminated: bool = False  # by SIGTERM: only a checkpoint is written

    def state_dict(self) -> dict[str, Any]:
        numbers = {"iteration": self.iteration, "env_steps": self.env_steps, "best": self.best, "ended": self.ended}
        return numbers | {"meter": self.meter.state_dict(), "doctor": self.doctor.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        self.best, self.ended = state["best"], state["ended"]
        self.meter.load_state_dict(state["meter"])
        self.doctor.load_state_dict(state["doctor"])

    def over(self, run: Run) -> bool:
        """Whether the loop stops here: the budget is spent, nothing is left, or someone said so."""
        return self.fraction(run) >= 1 or self.ended or self.interrupted or self.terminated

    def fraction(self, run: Run) -> float:
        done = [self.iteration / run.iterations] if run.iterations else []
        done += [self.env_steps / run.env_steps] if run.env_steps else []
        return min(1.0, max(done))


def train(algo: Any, env: Any, run: Run, log: Log, progress: Progress) -> Progress:
    """Walk the four rooms until the budget is spent or the run is told to stop."""
    meter, doctor, clock = progress.meter, progress.doctor, Clock(progress.env_steps)
    doctor.attach(algo.optimizer)
    while not progress.over(run):
        algo.progress = progress.fraction(run)
        set_learning_rate(algo, progress.iteration)
        doctor.begin(env)
        try:
            rollout, credited = walk(algo, env, meter)
        except Exhausted as error:
            if not progress.iteration:
                raise
            log.note(f"ended after iteration {progress.iteration}: {error}")
            progress.ended = True
            break
        except RewardFailed:
            log.iteration(progress.iteration + 1, progress.env_steps, {"doctor/reward_error": 1.0})
            raise
        progress.iteration += 1
        progress.env_steps += int(rollout["mask"].sum())
        meter.episodes += finished(env, rollout)
        evaluating = evaluation_is_due(env, run, progress, algo.progress)
        due = int(progress.fraction(run) * LOGGED) > int(algo.progress * LOGGED)
        if evaluating or due or progress.iteration <= EARLY:
            seen = doctor.measure(algo, env, rollout, credited, meter)
            metrics = averages(meter) | clock.speed(progress.env_steps)
            metrics = doctor.name(seen, metrics, progress.iteration, log.alarm)
            if evaluating:
                metrics |= validate(algo, env, run, log, progress)
                clock.restart()
            if log.iteration(progress.iteration, progress.env_steps, metrics):
                progress.interrupted = True
            log.completions(progress.iteration, credited, env)
        if checkpoint_is_due(run, progress, evaluating, clock):
            save(log.folder, algo, env, progress, keep=run.keep)
    save(log.folder, algo, env, progress, keep=run.keep)
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


def evaluation_is_due(env: Any, run: Run, progress: Progress, before: float) -> bool:
    """Every `evaluate_every` iterations or `evaluations` times a run, and at the end where there is a validation split.

    `before` is the fraction of the run that was done before this iteration.
    """
    if run.evaluate_every and progress.iteration % run.evaluate_every == 0:
        return True
    if int(progress.fraction(run) * run.evaluations) > int(before * run.evaluations):
        return True
    return progress.fraction(run) >= 1 and getattr(env, "splits", {}).get("validation", 1) > 0


def checkpoint_is_due(run: Run, progress: Progress, evaluated: bool, clock: "Clock") -> bool:
    if run.checkpoint_every:
        return progress.iteration % run.checkpoint_every == 0
    return clock.save_is_due() or evaluated


def learn(algo: Any, meter: Meter) -> None:
    """One optimiser step per minibatch; micro-batches only add up its gradient."""
    parameters = [p for group in algo.optimizer.param_groups for p in group["params"]]
    meter.ratios = []
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


def save(folder: Path, algo: Any, env: Any, progress: Progress, name: str = "latest", keep: int = 0) -> None:
    """Everything the run is made of: whatever of the algorithm has a state, the generators, the env, the progress."""
    parts = {key: x.state_dict() for key, x in vars(algo).items() if hasattr(x, "state_dict")}
    numbers = {key: x for key, x in vars(algo).items() if isinstance(x, int | float)}
    drawn = {key: x.get_state() for key, x in drawing(algo).items()}
    state = {"parts": parts, "numbers": numbers, "generators": drawn, "env": env.state_dict()}
    checkpoint.save(folder, state | {"progress": progress.state_dict()}, name, keep, progress.iteration)


def drawing(algo: Any) -> dict[str, torch.Generator]:
    """Every generator that an algorithm or its policy draws from, by name."""
    return generators(algo) | {f"policy.{key}": x for key, x in generators(algo.policy).items()}


def restore(folder: Path, algo: Any, env: Any, name: str = "latest", tidy: bool = False) -> Progress:
    """Put a run back where `save` left it; tidy: see `checkpoint.load`."""
    state = checkpoint.load(folder, name, tidy)
    for key, part in state["parts"].items():
        getattr(algo, key).load_state_dict(part)
    for key, number in state["numbers"].items():
        setattr(algo, key, number)
    for key, drawn in drawing(algo).items():
        drawn.set_state(state["generators"][key])
    env.load_state_dict(state["env"])
    progress = Progress()
    progress.load_state_dict(state["progress"])
    return progress
