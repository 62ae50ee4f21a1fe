"""Simulators that TorchRL wraps: `env=torchrl env.lib=dm_control env.id=cartpole/swingup`, jumanji, brax and others."""

import difflib
import importlib
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium
import torch

from rlkit.api import Count, Natural, UserError
from rlkit.control import ControlEnv, specs
from rlkit.control.wrapping import Keywords
from rlkit.errors import one_line

from . import gym

LIBRARIES = {  # file of torchrl.envs.libs: its class, and the package that it needs
    "brax": ("BraxEnv", "brax"),
    "craftground": ("CraftGroundEnv", "craftground"),
    "dm_control": ("DMControlEnv", "dm_control"),
    "genesis": ("GenesisEnv", "genesis"),
    "gym": ("GymEnv", "gymnasium"),
    "habitat": ("HabitatEnv", "habitat"),
    "isaacgym": ("IsaacGymEnv", "isaacgym"),
    "jumanji": ("JumanjiEnv", "jumanji"),
    "libero": ("LiberoEnv", "libero"),
    "mjlab": ("MJLabEnv", "mjlab"),
    "mujoco_playground": ("MujocoPlaygroundEnv", "mujoco_playground"),
    "procgen": ("ProcgenEnv", "procgen"),
    "robohive": ("RoboHiveEnv", "robohive"),
    "safety_gymnasium": ("SafetyGymnasiumEnv", "safety_gymnasium"),
}
SEVERAL = ("lbforaging", "meltingpot", "openspiel", "pettingzoo", "smacv2", "unity_mlagents", "vmas")  # agents
IN_TWO = ("dm_control",)  # an id is a domain and a task


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    lib: str = "gym"  # the library, as torchrl.envs.libs calls it: dm_control, jumanji, brax, safety_gymnasium ...
    id: gym.Named = ""  # which environment of it; of dm_control DOMAIN/TASK, such as cartpole/swingup
    kwargs: Keywords = field(default_factory=dict)  # what TorchRL's class takes besides
    step_limit: Natural = 0  # steps after which an episode is truncated; 0: the environment's own limit
    processes: bool = False  # step each of the copies that are learned from in a process of its own
    action_masks: bool = True  # play and learn only what info["action_mask"] allows, where the environment tells it


class Adapted(gymnasium.Env[Any, Any]):
    """An environment of TorchRL as one of Gymnasium."""

    def __init__(self, env: Any, called: str) -> None:  # Any: an EnvBase, whose import takes seconds
        if env.batch_size:
            raise UserError(f"{called} is {tuple(env.batch_size)} environments in one: leave out what makes it several")
        if len(env.action_keys) > 1 or isinstance(env.action_key, tuple):
            raise UserError(f"{called} has several agents or actions: use env=pettingzoo, or wrap it for env=gym")
        self.env, self.spec_seen = env, env.observation_spec
        keys = [*self.spec_seen.keys()]
        self.alone = keys[0] if len(keys) == 1 else ""  # a single part is the observation, whatever it is called
        if self.alone:
            self.spec_seen = self.spec_seen[self.alone]
        self.observation_space = specs.space(self.spec_seen, f"{called}: its observation")
        self.action_space = specs.space(env.action_spec, f"{called}: its action")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.env.set_seed(seed)
        self.now = self.env.reset()
        return self.shown(self.now), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.now[self.env.action_key] = specs.given(self.env.action_spec, action)
        played = self.env.step(self.now)
        after = played["next"]
        terminated = bool(after["terminated"])
        self.now = self.env.step_mdp(played)
        reward, truncated = float(after["reward"]), bool(after["done"]) and not terminated
        return self.shown(after), reward, terminated, truncated, {}

    def shown(self, now: Any) -> Any:
        return specs.seen(self.spec_seen, self.observation_space, now[self.alone] if self.alone else now)

    def close(self) -> None:
        if not self.env.is_closed:
            self.env.close()


def world(lib: str, name: str, **keywords: Any) -> Adapted:
    """One copy; what keeps it from being made is told in one line."""
    kind, called = getattr(importlib.import_module(f"torchrl.envs.libs.{lib}"), LIBRARIES[lib][0]), f"env.id={name}"
    try:
        made = kind(*(name.split("/") if lib in IN_TWO else [name]), **keywords)
    except Exception as error:  # whatever a simulator raises
        known = [x if isinstance(x, str) else "/".join((x[0], y)) for x in kind.available_envs for y in tasks(x)]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near and name not in known else one_line(error)
        told = f" with env.kwargs={one_line(keywords)}" if keywords else ""
        raise UserError(f"{called} of env.lib={lib}{told} cannot be made: {hint}") from error
    return Adapted(made, called)


def tasks(listed: str | tuple[str, list[str]]) -> list[str]:
    """Those of a domain; a library without domains lists names."""
    return [""] if isinstance(listed, str) else listed[1]


def check_library(lib: str) -> None:
    """Raises: UserError where TorchRL has no such library, where it has several agents, and where it is missing."""
    if lib in SEVERAL:
        raise UserError(
            f"env.lib={lib} has several agents: use env=pettingzoo, or wrap it as a gymnasium.Env for env=gym"
        )
    if lib not in LIBRARIES:
        near = difflib.get_close_matches(lib, LIBRARIES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"env.lib={lib} is no library of TorchRL's that fits: {hint}There are {', '.join(LIBRARIES)}")
    if find_spec(package := LIBRARIES[lib][1]) is None:
        raise UserError(f"env.lib={lib} needs the package {package}, which is not installed: pip install {package}")


MODULES = ("backend",)  # keywords that name a module, which would be imported


def make(config: Config, seed: int, device: str | torch.device) -> ControlEnv:
    """An environment of a library that TorchRL wraps, with the rewards and ends that it has there."""
    check_library(config.lib)
    if named := [key for key in config.kwargs if key in MODULES]:
        raise UserError(
            f"env.kwargs.{named[0]} is not allowed, as it names code to import: leave it out, or use env=gym"
        )
    if not config.id or (config.lib in IN_TWO and config.id.count("/") != 1):
        example = "cartpole/swingup" if config.lib in IN_TWO else "NAME"
        raise UserError(f"env.id={config.id} is not understood: env.lib={config.lib} needs env.id={example}")
    copies = gym.Config(
        config.rows,
        config.id,
        config.kwargs,
        step_limit=config.step_limit,
        processes=config.processes,
        action_masks=config.action_masks,
    )
    made = gym.make(copies, seed, device, factory=partial(world, config.lib, config.id))
    made.source = f"TorchRL {config.lib} {config.id}"
    return made
