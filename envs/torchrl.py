"""Simulators that TorchRL wraps: `env=torchrl env.lib=dm_control env.id=cartpole/swingup`, jumanji, brax and others."""

import difflib
import importlib
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Discrete, MultiDiscrete

from rlkit import spaces
from rlkit.api import Count, Natural, UserError
from rlkit.control import ControlEnv, specs
from rlkit.control.wrapping import Keywords
from rlkit.errors import one_line
from rlkit.terminal import warn

from . import gym

if TYPE_CHECKING:
    from rlkit.api import AnySpace

FRAMES = ("frame_skip",)
PIXELS = ("frame_skip", "from_pixels", "pixels_only")
LIBERO = (*PIXELS[:2], "task_id", "camera", "wrist_camera", "camera_height", "camera_width", "max_episode_steps")
GENESIS = (*PIXELS[:2], "task_name", "max_steps", "pixels_res")
# A file of torchrl.envs.libs: its class, the package that it needs, and the keywords that may be given; None: those of
# the environment that the class makes, and none that TorchRL reads itself but PIXELS.
LIBRARIES: dict[str, tuple[str, str, tuple[str, ...] | None]] = {
    "brax": ("BraxEnv", "brax", FRAMES),
    "dm_control": ("DMControlEnv", "dm_control", None),
    "genesis": ("GenesisEnv", "genesis", GENESIS),
    "gym": ("GymEnv", "gymnasium", None),
    "habitat": ("HabitatEnv", "habitat", FRAMES),
    "jumanji": ("JumanjiEnv", "jumanji", ("jit",)),
    "libero": ("LiberoEnv", "libero", LIBERO),
    "mujoco_playground": ("MujocoPlaygroundEnv", "mujoco_playground", (*FRAMES, "config_overrides")),
    "robohive": ("RoboHiveEnv", "robohive", PIXELS),
    "safety_gymnasium": ("SafetyGymnasiumEnv", "safety_gymnasium", None),
}
# What it reads itself: copies, processes, code, devices, resets of its own, and what does nothing here.
COPIES = ("num_workers", "num_envs", "batch_size", "device", "backend", "compile", "env", "env_name", "task_name")
RESETS = ("auto_reset", "auto_reset_replace", "native_autoreset", "missing_obs_value", "allow_done_after_reset")
NOTHING = ("policy", "spec_locked", "categorical_action_encoding", "convert_actions_to_numpy")
TORCHRLS = (*COPIES, *RESETS, *NOTHING)
SEVERAL = ("lbforaging", "meltingpot", "openspiel", "pettingzoo", "smacv2", "unity_mlagents", "vmas")  # agents
BATCHED = ("envpool", "isaac_lab", "isaacgym", "mjlab", "procgen")  # play many copies in one
IN_TWO = ("dm_control",)  # an id is a domain and a task
# Some tasks (lqr) draw their model when they are made, which no later seed changes: all copies are to have the same.
FIXED: dict[str, dict[str, Any]] = {"dm_control": {"random": 0}}

_told: set[tuple[str, int]] = set()  # of which environments and limits was said that they truncate by themselves


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    lib: str = "gym"  # library, by its name in torchrl.envs.libs: dm_control, jumanji, brax ...
    id: gym.Named = ""  # id of the environment; of dm_control DOMAIN/TASK, such as cartpole/swingup
    kwargs: Keywords = field(
        default_factory=dict
    )  # what the environment takes besides, such as frame_skip or from_pixels
    step_limit: Natural = 0  # steps after which an episode is truncated, if the simulator's own limit is not lower
    processes: bool = False  # run each copy in a process of its own, in training


class Adapted(gymnasium.Env[Any, Any]):
    """An environment of TorchRL as one of Gymnasium; it tells if it truncates an episode before `limit` steps."""

    # Any: an EnvBase, whose import takes seconds
    def __init__(self, env: Any, called: str, limit: int) -> None:
        if env.batch_size:
            raise UserError(f"{called} is {tuple(env.batch_size)} environments in one: leave out what makes it several")
        if len(env.action_keys) > 1 or isinstance(env.action_key, tuple):
            raise UserError(f"{called} has several agents or actions: use env=pettingzoo, or wrap it for env=gym")
        self.env, self.called, self.limit, self.steps = env, called, limit, 0
        self.spec_seen, keys = env.observation_spec.clone(), [*env.observation_spec.keys()]
        for key in {*keys} & {*env.state_spec.keys()}:  # of jumanji and brax: what no agent sees, and a key of draws
            del self.spec_seen[key]
            keys.remove(key)
        self.alone = keys[0] if len(keys) == 1 else ""  # a single part is the observation, whatever it is called
        if self.alone:
            self.spec_seen = self.spec_seen[self.alone]
        self.observation_space = specs.space(self.spec_seen, f"{called}: its observation")
        self.action_space = specs.space(env.action_spec, f"{called}: its action")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.env.set_seed(seed)
        self.now, self.steps = self.env.reset(), 0
        return self.shown(self.now), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.now[self.env.action_key] = specs.given(self.env.action_spec, action)
        played = self.env.step(self.now)
        after = played["next"]
        terminated = bool(after["terminated"])
        self.now = self.env.step_mdp(played)
        self.steps += 1
        reward, truncated = float(after["reward"]), bool(after["done"]) and not terminated
        if truncated and self.steps < self.limit:
            tell_early(self.called, self.steps, self.limit)
        return self.shown(after), reward, terminated, truncated, {}

    def shown(self, now: Any) -> Any:
        return specs.seen(self.spec_seen, self.observation_space, now[self.alone] if self.alone else now)

    def close(self) -> None:
        if not self.env.is_closed:
            self.env.close()


def tell_early(called: str, steps: int, limit: int) -> None:
    """Say once that the simulator itself truncates an episode."""
    if (called, limit) in _told:
        return
    _told.add((called, limit))
    warn(f"{called} truncated an episode by itself after {steps} steps, before env.step_limit={limit}")


def world(lib: str, name: str, limit: int = 0, /, **keywords: Any) -> Adapted:
    """One copy. Raises: UserError with the reason where it cannot be made."""
    kind, called = getattr(importlib.import_module(f"torchrl.envs.libs.{lib}"), LIBRARIES[lib][0]), f"env.id={name}"
    try:
        made = kind(*(name.split("/") if lib in IN_TWO else [name]), **FIXED.get(lib, {}) | keywords)
    except Exception as error:  # whatever a simulator raises
        known = listed(kind)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near and name not in known else one_line(error)
        told = f" with env.kwargs={one_line(keywords)}" if keywords else ""
        raise UserError(f"{called} of env.lib={lib}{told} cannot be made: {hint}") from error
    if lib == "gym":
        for space in (made.observation_space, made.action_space):
            check_starts(space, called)
    return Adapted(made, called, limit)


def check_starts(space: "AnySpace", called: str) -> None:
    """Raises: UserError where choices do not count from 0; TorchRL would hand on others than were chosen."""
    for _, part in spaces.leaves(space):
        if isinstance(part, Discrete | MultiDiscrete) and np.any(part.start):
            raise UserError(f"{called} has {part}, whose start TorchRL leaves out: use env=gym env.id=...")


def listed(kind: Any) -> list[str]:  # Any: a class of TorchRL's
    """The ids that a library names; none where its package is another one, which cannot even do that."""
    try:
        return [x if isinstance(x, str) else "/".join((x[0], y)) for x in kind.available_envs for y in tasks(x)]
    except Exception:  # whatever a simulator raises; why it cannot be made is said
        return []


def tasks(listed: str | tuple[str, list[str]]) -> list[str]:
    """Those of a domain; a library without domains lists names."""
    return [""] if isinstance(listed, str) else listed[1]


def check_library(lib: str) -> None:
    """Raises: UserError where TorchRL has no such library, where it has several agents, and where it is missing."""
    if lib in SEVERAL:
        raise UserError(
            f"env.lib={lib} has several agents: use env=pettingzoo, or wrap it as a gymnasium.Env for env=gym"
        )
    if lib in BATCHED:
        raise UserError(
            f"env.lib={lib} plays many copies in one, and here each copy is one environment: wrap one as a "
            "gymnasium.Env for env=gym"
        )
    if lib not in LIBRARIES:
        near = difflib.get_close_matches(lib, LIBRARIES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? There" if near else "there"
        raise UserError(f"env.lib={lib} is not a library of TorchRL's that fits: {hint} are {', '.join(LIBRARIES)}")
    if find_spec(package := LIBRARIES[lib][1]) is None:
        raise UserError(f"env.lib={lib} needs the package {package}, which is not installed: pip install {package}")


def check_keywords(lib: str, keywords: Keywords) -> None:
    """Raises: UserError for a keyword by which TorchRL would start processes, import code or change how it plays."""
    allowed = LIBRARIES[lib][2]
    for key in keywords:
        if allowed is not None and key not in allowed:
            raise UserError(f"env.kwargs.{key} is not allowed with env.lib={lib}: there are {', '.join(allowed)}")
        if key in TORCHRLS or key.startswith("_"):
            raise UserError(
                f"env.kwargs.{key} is not allowed: TorchRL would read it, and rlkit makes the copies and plays them; "
                "leave it out, and give env.rows or env.processes for more copies"
            )


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """An environment of a library that TorchRL wraps, with the rewards and ends that it has there."""
    check_library(config.lib)
    check_keywords(config.lib, config.kwargs)
    if not config.id or (config.lib in IN_TWO and config.id.count("/") != 1):
        example = "cartpole/swingup" if config.lib in IN_TWO else "NAME"
        raise UserError(f"env.id={config.id} is not understood: env.lib={config.lib} needs env.id={example}")
    copies = gym.Config(
        config.rows,
        config.id,
        config.kwargs,
        step_limit=config.step_limit,
        processes=config.processes,
    )
    made = gym.make(copies, seed, device, factory=partial(world, config.lib, config.id, config.step_limit))
    made.source = f"TorchRL {config.lib} {config.id}"
    return made
