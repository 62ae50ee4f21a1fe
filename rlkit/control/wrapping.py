"""Wrappers around each copy of a Gymnasium environment: those of gymnasium.wrappers by their names, and one's own."""

import difflib
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from rlkit.control.contract import some_action
from rlkit.errors import UserError, one_line
from rlkit.named import named

Keywords = dict[str, Any]  # a wrapper's own
OWN = "it takes a function, which no text can give: write a wrapper of your own, FILE.py:NAME"
REFUSED = {  # of gymnasium.wrappers, each with what to do instead
    "Autoreset": "rlkit starts each episode itself: leave it out",
    "HumanRendering": "a run opens no window: look with video=FILE.gif of rlkit.evaluate",
    "NormalizeObservation": "its statistics would not be saved: give policy.normalize=true",
    "NormalizeReward": "its statistics would not be saved: give algo.normalize_reward=true",
    "RecordVideo": "it writes elsewhere than into the run's folder: look with video=FILE.gif of rlkit.evaluate",
    **dict.fromkeys(("TransformAction", "TransformObservation", "TransformReward"), OWN),
}
DRAWN = "rgb_array"  # the way of drawing that opens no window
CONVERTED = ("Conversion", "ToNumpy", "ToTorch")  # to arrays of other libraries


def check_drawing(keywords: Keywords) -> None:
    """Raises: UserError where an environment would open a window."""
    if (mode := keywords.get("render_mode", DRAWN)) != DRAWN:
        raise UserError(
            f"env.kwargs.render_mode={one_line(mode)} is not allowed: a run opens no window; leave it out, or give "
            f"{DRAWN} where the environment needs it, and look with video=FILE.gif of rlkit.evaluate or rlkit.play"
        )


def check_window(env: gymnasium.Env[Any, Any], called: str) -> None:
    """Raises: UserError where an environment, such as an object given in Python, draws each step into a window."""
    if env.render_mode == "human":
        raise UserError(
            f"{called} draws into a window (render_mode=human), and a run opens none: make it without, and look with "
            "video=FILE.gif of rlkit.evaluate or rlkit.play"
        )


def known() -> list[str]:
    """The wrappers that gymnasium has, but for those that are refused."""
    return [x for x in gymnasium.wrappers.__all__ if x[0].isupper() and x not in REFUSED and not x.endswith(CONVERTED)]


def found(name: str) -> Callable[..., Any]:
    """The wrapper that a name stands for."""
    if name in REFUSED:
        raise UserError(f"env.wrappers={name} is not allowed: {REFUSED[name]}")
    if ":" not in name and name in known():
        try:
            kind: Callable[..., Any] = getattr(gymnasium.wrappers, name)
        except ImportError as error:
            raise UserError(f"env.wrappers={name} needs a package that is not installed: {one_line(error)}") from error
        return kind
    if ":" not in name:
        near = difflib.get_close_matches(name, known(), n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}? One" if near else "one"
        raise UserError(
            f"env.wrappers={name} is none of gymnasium.wrappers: {hint} of your own is PATH.py:NAME or "
            "PACKAGE.MODULE:NAME"
        )
    return named("env.wrappers", name)


def grouped(keywords: Keywords) -> dict[str, Keywords]:
    """What each wrapper takes: of {NAME: {KEY: VALUE}}, and of NAME.KEY=VALUE."""
    groups: dict[str, Keywords] = {}
    for word, value in keywords.items():
        name, dot, key = word.partition(".")
        if not (dot or isinstance(value, dict)):
            raise UserError(f"env.wrapper_kwargs.{name}={one_line(value)} is not a mapping: give {{KEY: VALUE}}")
        groups.setdefault(name, {}).update({key: value} if dot else value)
    return groups


def wrapped(env: gymnasium.Env[Any, Any], names: Sequence[str], keywords: Keywords) -> gymnasium.Env[Any, Any]:
    """The environment inside of its wrappers, the first one innermost.

    keywords: what the wrapper of each name takes besides the environment; a name is what follows the last colon.

    Raises: UserError for a wrapper that is not there, or that does not take what it is given.
    """
    keywords, short = grouped(keywords), [name.rpartition(":")[2] for name in names]
    if unknown := [name for name in keywords if name not in short]:
        there = f"give one of {', '.join(short)}" if short else "name it in env.wrappers, too"
        raise UserError(f"env.wrapper_kwargs.{unknown[0]} is for no wrapper of env.wrappers: {there}")
    for name, key in zip(names, short, strict=True):
        given, wrap = deepcopy(keywords.get(key, {})), found(name)
        check_rescaled(env, name)
        if name in known():  # these take shapes as tuples, which no text has
            given = {word: tuple(value) if isinstance(value, list) else value for word, value in given.items()}
        try:
            env = wrap(env, **given)
        except (TypeError, gymnasium.error.Error, AssertionError, ValueError) as error:
            raise UserError(
                f"env.wrappers={name} with env.wrapper_kwargs.{key}={one_line(given)} cannot be made: {one_line(error)}"
            ) from error
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"env.wrappers={name} returned {type(env).__name__}: it has to return an environment")
    return env


def check_rescaled(env: gymnasium.Env[Any, Any], name: str) -> None:
    """Raises: UserError where a component has equal bounds: Gymnasium would divide by their difference."""
    space = {"RescaleAction": env.action_space, "RescaleObservation": env.observation_space}.get(name)
    if isinstance(space, Box) and (space.low == space.high).any():
        raise UserError(
            f"env.wrappers={name} cannot rescale {space}, of which a component has equal bounds: give it others in the "
            f"environment, or leave {name} out"
        )


def cut_before(env: gymnasium.Env[Any, Any], limit: int) -> int | None:
    """The step limit inside of one of `limit` steps, if it is lower; None where there is no such limit."""
    limits: list[int] = []
    while isinstance(env, gymnasium.Wrapper):
        limits += [env._max_episode_steps] if isinstance(env, TimeLimit) else []
        env = env.env
    return min((x for x in limits[limits.index(limit) + 1 :] if x < limit), default=None) if limit in limits else None


def longest(env: gymnasium.Env[Any, Any]) -> int | None:
    """The most steps of a policy in an episode; None where no TimeLimit is known.

    A TimeLimit counts the steps inside of it, and a wrapper around it may play several of them in one of the policy's:
    how many shows the first step of an episode.
    """
    limits, inner = [], env
    while isinstance(inner, gymnasium.Wrapper):
        limits += [inner] if isinstance(inner, TimeLimit) else []
        inner = inner.env
    if not limits or limits == [env]:
        return limits[0]._max_episode_steps if limits else None
    told = env.reset(seed=0)
    before = [limit._elapsed_steps or 0 for limit in limits]
    env.step(some_action(env.observation_space, env.action_space, *told))
    paces = [max(1, (limit._elapsed_steps or 0) - then) for limit, then in zip(limits, before, strict=True)]
    return min((-(-limit._max_episode_steps // n) for limit, n in zip(limits, paces, strict=True)))
