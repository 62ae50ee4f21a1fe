"""Which actions an environment allows, as part of what it shows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, MultiBinary

from rlkit.errors import UserError
from rlkit.spaces import MASK, REST, Array, choices, masks_actions
from rlkit.terminal import warn

One = gymnasium.Env[Any, Any]


@runtime_checkable
class Asked(Protocol):
    """An environment or a wrapper with the method that sb3-contrib's MaskablePPO calls."""

    def action_masks(self) -> object: ...


def tells_mask(make: Callable[[], One], called: str = "the environment") -> bool:
    """Whether an environment says in its info which actions are allowed; a copy is made and reset for that."""
    env = make()
    try:
        if choices(env.action_space) is None:
            return False
        if MASK in env.reset(seed=0)[1]:
            return True
        if masks_actions(env.observation_space):
            return False
        env.action_space.seed(0)
        late = MASK in env.step(env.action_space.sample())[4]
        if late or any(isinstance(x, Asked) for x in layers(env)):
            what = "gives no action_mask in its reset" if late else "has action_masks(), which is not called here"
            warn(
                f"{called} {what}, so all actions are allowed: give the mask as info['action_mask'] of each reset and "
                "step"
            )
        return False
    finally:
        env.close()


def tell_unread(infos: Mapping[Any, Any], seen: Iterable[Any], called: str) -> None:
    """Say where the infos of a game hold masks of its agents: a policy reads them in observations alone."""
    told = any(isinstance(info, Mapping) and MASK in info for info in infos.values())
    if told and not any(masks_actions(space) for space in seen):
        warn(
            f"{called} gives action_mask in its infos, which is not read, so all actions are allowed: let observations "
            f"be a Dict of {REST} and {MASK}"
        )


def tell_ignored(infos: object, masked: bool, called: str) -> None:
    """Say the same of a vector environment, once."""
    if not masked and isinstance(infos, Mapping) and MASK in infos:
        _once(
            f"the {called} gives action_mask in its infos, which is not read, so all actions are allowed: put "
            "rlkit.control.masks.MaskInObservation around each copy"
        )


_once = cache(warn)


def layers(env: One) -> Iterator[One]:
    """An environment from its outermost wrapper to itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def side_by_side(mask: Any) -> Array:  # Any: nested as the action space is
    """A mask of actions as one row of numbers: of several choices it may be a tuple, as `sample` of the space takes it.

    What is not numbers (None in a tuple: all are allowed) gives no entries.
    """
    if isinstance(mask, tuple | list):
        return np.concatenate([np.empty(0, dtype=np.int8), *map(side_by_side, mask)])
    row = np.asarray(mask).reshape(-1)
    return row if row.dtype.kind in "biuf" else np.empty(0, dtype=np.int8)


class MaskInObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Puts `info["action_mask"]` beside the observation: {"observation": ..., "action_mask": [Σ n_i] of 0 and 1}.

    Policies keep to the actions that such an observation allows, in what they play and in what they learn.
    """

    def __init__(self, env: One) -> None:
        super().__init__(env)
        counts = choices(env.action_space)
        self.size = sum(counts or ())
        self.observation_space = Dict({REST: env.observation_space, MASK: MultiBinary(self.size)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self.beside(observation, info, over=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        over = bool(terminated or truncated)
        return self.beside(observation, info, over), reward, terminated, truncated, info

    def beside(self, observation: Any, info: dict[str, Any], over: bool) -> dict[str, Any]:
        """Raises: UserError where a mask is missing, or has another size than there are actions."""
        if MASK not in info and not over:
            raise UserError(
                "the environment gave an action_mask before and gives none now: give one at each step, all of 1 where "
                "every action is allowed"
            )
        mask = (side_by_side(info.get(MASK, np.ones(self.size))) > 0).astype(np.int8)  # as bytes 0.5 and 256 would be 0
        if len(mask) != self.size:
            raise UserError(f"action_mask has {len(mask)} entries, and there are {self.size} actions: give one each")
        return {REST: observation, MASK: mask}
