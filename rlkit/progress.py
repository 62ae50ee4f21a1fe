"""How far a run has come, and everything that it is made of: saved, and put back exactly."""

import math
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from rlkit.api import Algorithm, Env, State
from rlkit.doctor.checks import Doctor
from rlkit.errors import UserError
from rlkit.meter import Meter
from rlkit.recording import checkpoint
from rlkit.seeding import generators
from rlkit.settings.config import Run


@dataclass
class Progress:
    """How far a run has come, and the measurements that were not logged yet."""

    iteration: int = 0
    env_steps: int = 0
    best: float = -math.inf  # the best validation score so far
    ended: bool = False  # nothing was left to learn from
    meter: Meter = field(default_factory=Meter)
    doctor: Doctor = field(default_factory=Doctor)
    interrupted: bool = False  # by Ctrl-C, or by a listener: the parameters so far are measured
    terminated: int = 0  # the signal, such as SIGTERM, after which only a checkpoint is written
    constants: dict[str, float] | None = None  # the algorithm's numbers that are not saved, as the run began

    def state_dict(self) -> State:
        numbers = {"iteration": self.iteration, "env_steps": self.env_steps, "best": self.best, "ended": self.ended}
        return numbers | {"meter": self.meter.state_dict(), "doctor": self.doctor.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.iteration, self.env_steps = state["iteration"], state["env_steps"]
        self.best, self.ended = state["best"], state["ended"]
        self.meter.load_state_dict(state["meter"])
        self.doctor.load_state_dict(state["doctor"])

    def over(self, run: Run) -> bool:
        """Whether the loop stops here: the budget is spent, nothing is left, or a stop was asked for."""
        return self.fraction(run) >= 1 or self.ended or self.interrupted or bool(self.terminated)

    def fraction(self, run: Run) -> float:
        done = [self.iteration / run.iterations] if run.iterations else []
        done += [self.env_steps / run.env_steps] if run.env_steps else []
        return min(1.0, max(done))


def save(folder: Path, algo: Algorithm, env: Env, progress: Progress, name: str = "latest", keep: int = 0) -> None:
    """Everything the run is made of: what the algorithm declares as `saved`, generators, environment, progress."""
    check_unchanged(algo, progress.constants)
    held = {key: vars(algo)[key] for key in algo.saved if vars(algo)[key] is not None}
    numbers = {key: x for key, x in held.items() if isinstance(x, int | float | Tensor)}
    parts = {key: x.state_dict() for key, x in held.items() if key not in numbers}
    drawn = {key: x.get_state() for key, x in drawing(algo).items()}
    state = {"parts": parts, "numbers": numbers, "generators": drawn, "env": env.state_dict()}
    checkpoint.save(folder, state | {"progress": progress.state_dict()}, name, keep, progress.iteration)


def restore(folder: Path, algo: Algorithm, env: Env, name: str = "latest", tidy: bool = False) -> Progress:
    """Put a run back where `save` left it; tidy: see `checkpoint.load`."""
    state = checkpoint.load(folder, name, tidy)
    for key in algo.saved:
        if key in state["parts"]:
            vars(algo)[key].load_state_dict(state["parts"][key])
        elif key in state["numbers"] and isinstance(vars(algo)[key], Tensor):
            vars(algo)[key].data.copy_(state["numbers"][key])  # in place: others may hold it, such as an optimizer
        elif key in state["numbers"]:
            vars(algo)[key] = state["numbers"][key]
        elif vars(algo)[key] is not None:
            raise UserError(
                f"{folder}: its checkpoint has no '{key}', which {type(algo).__name__} needs; start a new run"
            )
    for key, drawn in drawing(algo).items():
        drawn.set_state(state["generators"][key])
    env.load_state_dict(state["env"])
    progress = Progress()
    progress.load_state_dict(state["progress"])
    return progress


def drawing(algo: Algorithm) -> dict[str, torch.Generator]:
    """Every generator that an algorithm or its policy draws from, by name."""
    return generators(algo) | {f"policy.{key}": x for key, x in generators(algo.policy).items()}


def check_saved(algo: Algorithm) -> dict[str, float]:
    """Refuse an algorithm with state that a checkpoint would lose; its numbers that are not saved must never change."""
    name = type(algo).__name__
    for key in algo.saved:
        if key not in vars(algo):
            raise UserError(f"{name}.saved names '{key}', and there is no such attribute: remove it, or set it")
        if not can_be_saved(vars(algo)[key]):
            raise UserError(
                f"{name}.saved names '{key}', a {type(vars(algo)[key]).__name__}: only numbers, tensors and what has "
                "a state_dict can be saved; use a torch.nn.ModuleList, or give it a state_dict and a load_state_dict"
            )
    for key, x in vars(algo).items():
        if key not in algo.saved and is_state(x) and not isinstance(x, torch.Generator):  # those are always saved
            raise UserError(unsaved(algo, key, f"looks like state ({type(x).__name__})"))
    numbers = {key: x for key, x in vars(algo).items() if isinstance(x, int | float)}
    return {key: x for key, x in numbers.items() if key not in (*algo.saved, "progress")}


def check_unchanged(algo: Algorithm, before: dict[str, float] | None) -> None:
    """Refuse state that came after the run began, and numbers that are not saved and have changed since."""
    now = check_saved(algo)
    for key in before.keys() | now.keys() if before is not None else ():
        was, x = (before or {}).get(key), vars(algo).get(key)
        if was is not x and was != x:
            raise UserError(unsaved(algo, key, f"changed from {was} to {x}"))


def unsaved(algo: Algorithm, key: str, why: str) -> str:
    name = type(algo).__name__
    return f"{name}.{key} {why} and would not be saved: write saved = (*Algorithm.saved, '{key}') in {name}"


def can_be_saved(x: object) -> bool:
    # An algorithm of a user's may hold any object; torch's own convention tells which have a state.
    return x is None or isinstance(x, int | float | Tensor) or hasattr(x, "load_state_dict")


def is_state(x: object) -> bool:
    """Whether a run would lose something without it: a tensor, an array, what has a state, a collection of these."""
    if isinstance(x, dict):
        return any(is_state(item) for item in x.values())
    if isinstance(x, list | tuple | set | deque):
        return any(is_state(item) for item in x)
    drawn = torch.Generator | np.random.Generator
    return isinstance(x, Tensor | nn.Module | np.ndarray | drawn) or hasattr(x, "state_dict")
