"""What control problems and who plays them must keep to, and a policy that is a table of actions."""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np
import torch
from gymnasium import Wrapper
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from tensordict import TensorDict
from torch import Tensor

from rlkit import spaces
from rlkit.api import Acts, Plays, State
from rlkit.control.vector import Array, Vector
from rlkit.errors import UserError

if TYPE_CHECKING:
    from rlkit.api import AnySpace


class ActionTable:
    """A deterministic policy that is nothing but a table: `actions[s]`."""

    def __init__(self, actions: Tensor) -> None:
        self.actions = actions

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        return self.actions[observation.to(self.actions.device)]  # that of a model is on the CPU

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        return {}


def acting(policy: Plays) -> Acts:
    """The policy, if it acts."""
    if _acts(type(policy)):  # to ask `isinstance` of a module takes as long as a step
        return cast(Acts, policy)
    if not isinstance(policy, Acts):
        raise UserError(f"a {type(policy).__name__} does not act, so it cannot play control problems; use another algo")
    return policy


@lru_cache
def _acts(kind: type) -> bool:
    return issubclass(kind, Acts)


def check_act(policy: Acts) -> None:
    """Refuse an `act` that cannot be called as environments call it."""
    try:
        inspect.signature(policy.act).bind(None, greedy=True)
    except TypeError as error:
        raise UserError(
            f"{type(policy).__name__}.act cannot be called with observations and greedy=True ({error}): write "
            "def act(self, observation, greedy=False)"
        ) from None
    except ValueError:  # it does not say what it takes
        pass


def chosen(policy: Acts, observation: Array, device: torch.device, greedy: bool, space: "AnySpace | None") -> Array:
    """What a policy does in each row. Raises: UserError where one of the user's own returns something else."""
    # A copy: the policy may remember it, or write into it, and the memory may be that of the environment.
    action: object = policy.act(torch.from_numpy(observation).to(device, copy=True), greedy=greedy)
    wanted = (len(observation), *(spaces.action_shape(space)[0] if space is not None else ()))
    if isinstance(action, Tensor) and action.shape == wanted:
        array: Array = action.cpu().numpy()
        if array.dtype.kind != "f" or isinstance(space, Box) or (array == np.rint(array)).all():
            return array
        found = "numbers that are not whole"
    else:
        found = f"a tensor {list(action.shape)}" if isinstance(action, Tensor) else f"a {type(action).__name__}"
    raise UserError(
        f"act of the policy returned {found} for {len(observation)} observations of {space}: let it return a tensor "
        f"{list(wanted)}, the action of each"
    )


@runtime_checkable
class Prepares(Protocol):
    """A policy that can get ready for a number of steps."""

    def prepared(self, steps: int, rows: int) -> Callable[[Array], Array] | None:
        """What `act` does in each of the next steps, from arrays to arrays; None: `act` has to be asked."""
        ...


# The methods by which policies of rlkit act.
CHOOSING = ("act", "forward", "choose", "outputs", "highest", "noisy", "best", "drawn", "disturbed", "scaled")


def prepared(policy: Acts, steps: int | None, rows: int) -> Callable[[Array], Array] | None:
    """See `Prepares`; None also where the number of steps is open."""
    if not steps or not _prepares(type(policy)) or not vars(policy).keys().isdisjoint(CHOOSING):
        return None
    return cast(Prepares, policy).prepared(steps, rows)


@lru_cache
def _prepares(kind: type) -> bool:
    """Whether a class prepares actions, and no subclass acts in another way; remembered, as it takes long to tell."""

    def newest(*names: str) -> int:
        return next((i for i, base in enumerate(kind.__mro__) if any(name in vars(base) for name in names)), 10**6)

    return issubclass(kind, Prepares) and newest("prepared", "on_arrays") <= newest(*CHOOSING)


def check_tape(tape: dict[str, Array], space: "AnySpace", source: str, first: int = 0) -> None:
    """Stop where a rollout holds what nothing can be learned from; first: the number of its first row."""
    check_finite(tape, source, first)
    for key in ("observation", "next_observation"):
        check_observed(space, tape[key], source)


def check_finite(tape: dict[str, Array], source: str, first: int) -> None:
    """Stop at the first number that is none, and say where it came from; tape: [T, n, ...]."""
    if all(np.isfinite(array).all() for array in tape.values() if array.dtype.kind == "f"):
        return
    for key, array in sorted(tape.items()):  # the action first: a policy that diverged is not the environment's fault
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            step, row, *component = np.argwhere(~np.isfinite(array))[0].tolist()
            where = f"component {component[0]} of " if component else ""
            advice = "try a smaller algo.lr" if key == "action" else "correct the environment, or end the episode there"
            raise FloatingPointError(
                f"not finite: {where}{key} at step {step} of row {first + row} of the rollout ({source}); "
                f"checkpoints written before are kept; {advice}"
            )


def check_actions(action: Array, alive: Array, seeds: Sequence[int], source: str) -> None:
    """Stop where a policy does not know what to do in an episode of an evaluation; action: [n, ...], alive: [n]."""
    if action.dtype.kind == "f" and not np.isfinite(action[alive]).all():
        row = int(np.argwhere(~np.isfinite(action.reshape(len(action), -1)).all(1) & alive)[0, 0])
        raise FloatingPointError(
            f"not finite: an action of the policy in an evaluation's episode, that of reset seed {seeds[row]} "
            f"({source}); checkpoints written before are kept; try a smaller algo.lr, or correct act of a policy of "
            "your own"
        )


def check_scores(score: Array, seeds: Sequence[int], source: str) -> None:
    """Stop where an episode of an evaluation has no score; score: [n], seeds: of the episodes' resets."""
    for each, seed in zip(score.tolist(), seeds, strict=True):
        if not math.isfinite(each):
            raise FloatingPointError(
                f"not finite: the return of an evaluation's episode, that of reset seed {seed} ({source}); "
                "checkpoints written before are kept; correct the environment, or end the episode there"
            )


def check_observed(space: "AnySpace | None", observation: Array, source: str) -> None:
    """Refuse choices that a space does not have, and parts that are not finite; observation: as a policy sees it."""
    if space is None or isinstance(space, Box):
        return
    for path, part, x in spaces.leaf_arrays(space, observation):
        where = f" at {'.'.join(path)}" if path else ""
        if isinstance(part, Box):
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                raise FloatingPointError(
                    f"not finite: the observation{where} ({source}); checkpoints written before are kept; correct the "
                    "environment, or end the episode there"
                )
            continue
        start, count = spaces.range_of(part)
        outside = (x < 0) | (x >= count)
        if outside.any():
            raise UserError(
                f"{source} gave the observation {int((x + start)[outside][0])}{where}, which is not in {part}: "
                "fix the environment, or its observation_space"
            )


def check_groups(first: Array, repeats: int, source: str) -> None:
    """Refuse groups whose attempts do not begin in the same state; first: what they see, [rows · repeats, ...]."""
    groups = first.reshape(-1, repeats, *first.shape[1:])
    if not np.array_equal(groups, np.broadcast_to(groups[:, :1], groups.shape), equal_nan=True):
        raise UserError(
            f"{source}: attempts from one start begin in different states, so there is nothing to compare: its reset "
            "ignores the seed; draw from self.np_random after super().reset(seed=seed), or use algo=ppo"
        )


def endless(source: str, steps: int, remedy: str) -> UserError:
    """What is said of an episode that goes on and on."""
    return UserError(f"{source}: an episode did not end in {steps:,} steps and no step limit is known: {remedy}")


@runtime_checkable
class Limited(Protocol):
    """A vector environment that truncates its episodes."""

    step_limit: int


def step_limit(vector: Vector) -> int | None:
    """The step limit that the vector environment, the specification of its copies or a wrapper around them tells."""
    inner = vector.unwrapped
    for told in (vector, inner):
        if isinstance(told, Limited):
            return told.step_limit
    copy = inner.envs[0] if isinstance(inner, SyncVectorEnv) else None
    spec = vector.spec if copy is None else copy.spec
    if spec is not None and spec.max_episode_steps is not None:
        return spec.max_episode_steps
    while isinstance(copy, Wrapper):
        if isinstance(copy, TimeLimit):
            return copy._max_episode_steps
        copy = copy.env
    return None


def check_rows(state: State, rows: int, agents: int) -> None:
    """Raises: UserError for a state of another number of rows, ValueError where it is not of as many throughout."""
    found = len(state["episodes"])
    if found != rows:
        raise UserError(f"the saved state has {found} rows, this environment {rows}: set env.rows={found // agents}")
    for key in ("ages", "length", "return", "seeds"):
        if len(state[key]) != rows:
            raise ValueError(f"'{key}' is of {len(state[key])} rows, not {rows}")
    if "memory" in state and len(state["memory"]) != rows:
        raise ValueError(f"'memory' is of {len(state['memory'])} rows, not {rows}")
