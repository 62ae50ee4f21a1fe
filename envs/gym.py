"""Any Gymnasium environment by its id: `env=gym env.id=Acrobot-v1`."""

import difflib
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlkit.api import Count, Natural, Reference, UserError
from rlkit.control import ControlEnv

EXTRAS = {".box2d": "box2d", ".mujoco": "mujoco", ".classic_control": "classic-control"}  # of gymnasium


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    id: str = ""  # a Gymnasium id, such as Acrobot-v1; it must be given
    kwargs: dict[str, Any] = field(default_factory=dict)  # what the environment's constructor takes
    step_limit: Natural = 0  # steps after which an episode is truncated; 0: the environment's own limit


def known(name: str) -> gymnasium.envs.registration.EnvSpec:
    """The specification of an id, or the ids that look like it."""
    if not name:
        raise UserError("env=gym needs the id of a Gymnasium environment: give env.id=ID, as in env.id=Acrobot-v1")
    try:
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ModuleNotFoundError, ValueError) as error:
        ids = {known_id.lower(): known_id for known_id in gymnasium.registry}
        near = [ids[match] for match in difflib.get_close_matches(name.lower(), ids, n=3, cutoff=0.4)]
        hint = f"did you mean {', '.join(near)}?" if near else "see gymnasium.farama.org for the ids"
        raise UserError(f"env.id={name} is not a Gymnasium environment: {hint}") from error


def make_one(config: Config, **how: Any) -> gymnasium.Env:
    """One copy; what keeps it from being made is told in one line."""
    spec = known(config.id)
    limit = {"max_episode_steps": config.step_limit} if config.step_limit else {}
    try:
        return gymnasium.make(spec, disable_env_checker=True, **limit, **{**config.kwargs, **how})
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        extra = next((name for part, name in EXTRAS.items() if part in str(spec.entry_point)), None)
        remedy = f"pip install 'gymnasium[{extra}]'" if extra else _line(error)
        raise UserError(f"env.id={config.id} needs a package that is not installed: {remedy}") from error
    except (gymnasium.error.Error, TypeError) as error:
        raise UserError(f"env.id={config.id} with env.kwargs={config.kwargs} cannot be made: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def make(config: Config, seed: int, device: str | torch.device, reference: Reference | None = None) -> ControlEnv:
    """A Gymnasium environment, its copies stepped one after the other."""
    make_one(config).close()

    def vector(n: int, **how: Any) -> SyncVectorEnv:
        return SyncVectorEnv([lambda: make_one(config, **how)] * n, autoreset_mode=AutoresetMode.DISABLED)

    source, together = f"Gymnasium {config.id}", max(config.rows, 16)
    drawn = partial(vector, 1, render_mode="rgb_array")
    return ControlEnv(
        vector, config.rows, seed, device, source, evaluation_copies=together, reference=reference, drawn=drawn
    )
