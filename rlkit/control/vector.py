"""Copies of one problem in a Gymnasium vector environment; its three autoreset modes look the same from outside."""

import copy
import functools
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from rlkit import spaces
from rlkit.control import masks, workers
from rlkit.control.ends import check_others, check_resets, either, last_seen, refuse_columns
from rlkit.errors import UserError, one_line
from rlkit.fields import GROUPS, Needs

Array = NDArray[Any]  # numbers of any type: float64 states, float32 observations, whole or real actions
Vector = VectorEnv[Array, Array, Array]
Luck = Annotated[Literal["shared", "own"], Needs(GROUPS)]
INSIDE = Path(gymnasium.__file__).parent
# Who reads what copies return.
READERS = (
    *(str(INSIDE / part) for part in ("vector", "wrappers", "core.py")),
    *map(os.path.dirname, (np.__file__, __file__)),
    functools.__file__,
)
LIFE = "life_lost"  # in an info: which copies lost a life in this step, and play on


@runtime_checkable
class Reseeds(Protocol):
    """A vector environment whose copies can be given other luck in the middle of an episode."""

    def reseed(self, seeds: Sequence[int]) -> None:
        """Let copy i draw from a stream of `seeds[i]` until its next reset; its state stays as it is."""
        ...


@runtime_checkable
class Shared(Protocol):
    """A vector environment in which several rows, side by side, are the agents of one copy, reset together."""

    agents: int  # of a copy
    acting: Array  # whether each row's agent is in the game [n]


class Copies:
    """`n` copies stepped together; where agents share a copy, `n` rows.

    `observation` is what to act on next; `step` returns the true successor, never the observation after a reset. Both
    may be the vector environment's own memory: they hold until the next call.
    `next_seed(row)` gives the reset seed of the episode that follows one that ended (used with autoreset disabled).
    lives: for the learner, a lost life ends an episode; `lost` says which.
    """

    def __init__(self, vector: Vector, next_seed: Callable[[int], int] | None = None, lives: bool = False) -> None:
        mode = vector.metadata.get("autoreset_mode")
        if mode not in [*AutoresetMode, *(known.value for known in AutoresetMode)]:
            raise UserError(f"{vector} does not say how it resets: set metadata['autoreset_mode'] to an AutoresetMode")
        self.vector, self.n, self.mode, self.next_seed = vector, vector.num_envs, AutoresetMode(mode), next_seed
        inner = vector.unwrapped  # a wrapper hides what it can do
        # SAME_STEP hands out the last observation of an episode behind the reset, which may have written over it.
        if self.mode is AutoresetMode.SAME_STEP and isinstance(inner, AsyncVectorEnv):
            raise UserError(
                f"{vector} resets its copies before it sends the last observation of an episode, which may be lost by "
                "then: make it with autoreset_mode=AutoresetMode.DISABLED"
            )
        if self.mode is AutoresetMode.SAME_STEP and isinstance(inner, SyncVectorEnv):
            for env in inner.envs:  # who made it goes on reading and setting its attributes
                env.step = functools.partial(kept, env.step)  # type: ignore[method-assign]
        self.action_space, self.observation_space = vector.single_action_space, vector.single_observation_space
        self.action_shape, self.action_type = spaces.action_shape(self.action_space)
        self.resets_alone = self.mode is not AutoresetMode.DISABLED
        # A vector env with one generator for all its copies takes one seed, not one for each.
        self.separate = isinstance(inner, (SyncVectorEnv, AsyncVectorEnv))
        self.seed_each = not self.resets_alone or self.separate
        self.shared = next((x for x in (vector, inner) if isinstance(x, Shared)), None)
        self.masked = spaces.masks_actions(self.observation_space)
        shape, kind = spaces.row(self.observation_space)
        self._plain = ((self.n, *shape), kind) if isinstance(self.observation_space, Box) else None
        self.acting = np.ones(self.n, dtype=bool)  # False: the next step of this row only resets it, or its agent left
        self.began = np.ones(self.n, dtype=bool)  # `observation` is the first one of an episode
        self.ages = np.zeros(self.n, dtype=np.int64)  # steps since the reset that this class or its user asked for
        self.lives, self.lost = lives, np.zeros(self.n, dtype=bool)
        self.seeds: list[int] = [0] * self.n
        self.observation: Array = np.empty(0)
        self.first: Array = np.empty(0)  # what each copy saw after its newest reset
        self.earned: Array = np.zeros(self.n)  # by each copy since its newest reset
        self.ended: Array = np.zeros(self.n)  # what each earned in its last whole episode, where it is reset from here

    def reset(self, seeds: Sequence[int]) -> None:
        """Start an episode in every copy."""
        self.seeds = list(seeds)
        if not self.seed_each and len(set(self.seeds)) < self.n:
            raise UserError(
                f"{self.vector} cannot start two copies alike, as groups need it: it takes one seed for all; "
                "make it a SyncVectorEnv, or use algo=ppo"
            )
        observation = self._begin([*self.seeds] if self.seed_each else self.seeds[0])
        self.observation, self.acting = self._convert(observation), self._acts()
        self.first, self.earned = self.observation.copy(), np.zeros(self.n)
        self.began, self.ages = np.ones(self.n, dtype=bool), np.zeros(self.n, dtype=np.int64)

    def reseed(self, seeds: Sequence[int]) -> None:
        """Give each copy luck of its own, from `seeds[i]`, for the episode that was just reset."""
        inner = self.vector.unwrapped
        for vector in (self.vector, inner):
            if isinstance(vector, Reseeds):
                vector.reseed(seeds)
                return
        # An environment that draws from np_random has seeded it in its reset; of others nobody knows the source.
        if not (self.separate and self._seeded()):
            raise UserError(
                "env.luck=own needs an environment that draws from self.np_random, seeded by super().reset(seed=seed), "
                f"or reseed(seeds) of its vector environment: {self.vector} has neither; give env.luck=shared"
            )
        inner.set_attr("np_random", [np_random(seed)[0] for seed in seeds])  # type: ignore[attr-defined]

    def check_luck(self) -> None:
        """Raises: UserError where `reseed` is impossible."""
        self.reset([0] * self.n)
        self.reseed([0] * self.n)

    def _acts(self) -> Array:
        """Whether each row's agent acts after a reset. bool [n]."""
        return np.ones(self.n, dtype=bool) if self.shared is None else self.shared.acting.copy()

    def _seeded(self) -> bool:
        return list(self.vector.unwrapped.get_attr("np_random_seed")) == self.seeds  # type: ignore[attr-defined]

    def restart(self, rows: Array) -> None:
        """Start the next episode in the rows where `rows` is True. The environment may write into what it gets."""
        self.observation = self._convert(self._begin([*self.seeds], {"reset_mask": rows.copy()}))
        self.first[rows], self.earned[rows], self.began[rows] = self.observation[rows], 0.0, True
        self.ages[rows], self.acting = 0, self._acts()
        self._wait()

    def step(self, action: Array) -> tuple[Array, Array, Array, Array]:
        """Step every copy with the policy's action [n] or [n, d]: true successor, reward, terminated, done."""
        try:
            raw, reward, terminated, truncated, info = self.vector.step(spaces.executed(self.action_space, action))
        except workers.UNANSWERED as error:
            workers.give_up(self.vector, error)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            refuse_unfit(error, self.vector)
            raise
        done = either(terminated, truncated, self.vector)
        total = self.earned + reward * self.acting  # before the rows that act change
        if not done.shape == total.shape == self.began.shape:
            refuse_columns(reward, terminated, truncated, self.vector)
        self.earned, self.began = np.where(done, 0.0, total), done | ~self.acting
        self.ages += 1
        if self.lives:
            self.lost = info[LIFE]
            self.began |= self.lost
        self.observation = successor = self._convert(raw)
        if done.any():  # some vector environments return arrays that a reset writes over
            successor, reward, terminated = successor.copy(), reward.copy(), terminated.copy()
        if self.shared is not None:
            self._leave(self.shared, done, total)
        elif self.mode is AutoresetMode.NEXT_STEP:
            check_resets(done, self.acting, self.vector)
            self.acting = ~done
            self._wait()
        elif done.any():
            if self.mode is AutoresetMode.SAME_STEP:
                for row in np.flatnonzero(done):
                    successor[row] = spaces.one(self.observation_space, last_seen(info, self.vector)[row])
            else:
                self.ended = np.where(done, total, self.ended)
                if self.next_seed is not None:
                    for row in np.flatnonzero(done):
                        self.seeds[row] = self.next_seed(int(row))
                self.restart(done)
                if not self.separate:  # Gymnasium's keep to it
                    check_others(successor, self.observation, done, self.vector)
        return successor, reward, terminated, done

    def _leave(self, shared: Shared, done: Array, total: Array) -> None:
        """Let agents that left wait for the others, and begin anew where all have left."""
        self.ended, self.acting = np.where(done, total, self.ended), shared.acting.copy()
        over = np.repeat(~self.acting.reshape(-1, shared.agents).any(1), shared.agents)
        if over.any():
            if self.next_seed is not None:
                self.seeds = [self.next_seed(row) if over[row] else seed for row, seed in enumerate(self.seeds)]
            self.restart(over)
        self._wait()

    def _wait(self) -> None:
        """Show a row that does not act its first observation: its last one may allow no action."""
        if (self.shared is not None or self.masked) and not self.acting.all():
            waits = ~self.acting.reshape(-1, *[1] * (self.first.ndim - 1))
            self.observation = np.where(waits, self.first, self.observation)

    def _begin(self, seed: int | list[int], options: dict[str, Any] | None = None) -> Array:
        try:
            observation, info = self.vector.reset(seed=seed, options=options)  # type: ignore[arg-type]
        except workers.UNANSWERED as error:
            workers.give_up(self.vector, error)
        masks.tell_ignored(info, self.masked, type(self.vector.unwrapped).__name__)
        return observation

    def replay(self, actions: Array, seeds: Sequence[int], ages: Array) -> None:
        """Return to the state after the last `ages[i]` of `actions` [K, n] since row i was reset with `seeds[i]`.

        Raises: ValueError where these are not the actions of so many rows.
        """
        wanted = (self.n, *spaces.action_shape(self.action_space)[0])
        if len(actions) and actions.shape[1:] != wanted:
            raise ValueError(f"actions of a step have the shape {actions.shape[1:]}, not {wanted}")
        self.next_seed, next_seed = None, self.next_seed
        self.reset(seeds)
        for step, action in enumerate(actions):
            starting = ages == len(actions) - step
            if step and starting.any():  # until its turn a row plays on: the reset seed wipes out what it did
                self.restart(starting)
            self.step(self._lawful(action.copy(), ages < len(actions) - step))  # some change what they get
        if len(actions) and (ages == 0).any():
            self.restart(ages == 0)
        self.next_seed = next_seed

    def play(self, actions: Array, seed: int, row: int) -> float:
        """What the copy in `row` earns from this reset seed on with these actions [K, n], an episode's."""
        self.next_seed, next_seed = None, self.next_seed
        self.reset([seed] * self.n)
        for action in actions:
            self.step(self._lawful(action.copy(), np.arange(self.n) != row))
        self.next_seed = next_seed
        return float(self.ended[row])

    def _lawful(self, action: Array, others: Array) -> Array:
        """Make the actions of rows in `others` permitted: they belong to other episodes, and may be forbidden now."""
        if not (self.masked and others.any()):
            return action
        free = spaces.permitted(self.observation_space, self.action_space, self.observation, action)
        return np.where(others.reshape(-1, *[1] * (action.ndim - 1)), free, action)

    def _convert(self, observation: Array) -> Array:
        if self._plain and (observation.shape, observation.dtype) == self._plain:
            return observation  # is already as a policy reads it
        return spaces.observed(self.observation_space, observation)


def kept(step: Callable[[Any], Sequence[Any]], action: Any) -> tuple[Any, ...]:
    """A step whose observation no reset writes over."""
    seen, *rest = step(action)
    return copy.deepcopy(seen), *rest


def refuse_unfit(error: Exception, vector: Vector) -> None:
    """Raises: UserError where Gymnasium cannot read what a later step returned; other errors are a copy's own."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(vector.unwrapped, SyncVectorEnv) and all(file.startswith(READERS) for file in files):
        raise UserError(
            f"a step of the environment returned something else than its first one ({one_line(error)}): return an "
            "observation as observation_space has it, one number, True or False twice, and a dictionary"
        ) from error


def empty_tape(length: int, copies: Copies) -> dict[str, Array]:
    """Where `length` steps of every copy are written: arrays [T, n, ...] of zeros."""
    observation = np.zeros((length, *copies.observation.shape), dtype=copies.observation.dtype)
    flags = ("terminated", "done", "mask", LIFE) if copies.lives else ("terminated", "done", "mask")
    return {
        "observation": observation,
        "next_observation": np.zeros(observation.shape, observation.dtype),
        "action": np.zeros((length, copies.n, *copies.action_shape), dtype=copies.action_type),
        "reward": np.zeros((length, copies.n), dtype=np.float32),
        **{key: np.zeros((length, copies.n), dtype=bool) for key in flags},
    }


def played(tape: dict[str, Array], steps: int, cut: Array | None) -> dict[str, Array]:
    """The first steps of it; what is not masked contributes nothing, and rows in `cut` are done where it ends."""
    tape = {key: array[:steps] for key, array in tape.items()}
    tape["reward"] *= tape["mask"]
    tape["terminated"] &= tape["mask"]
    tape["done"] &= tape["mask"]
    if cut is not None:
        tape["done"][-1] |= cut
    return tape


def rows_first(tape: dict[str, Array], lead: tuple[int, ...], device: torch.device) -> dict[str, Tensor]:
    """The same as tensors [*lead, T, ...]."""
    data = {}
    for key, array in tape.items():
        rows = torch.from_numpy(np.ascontiguousarray(array.swapaxes(0, 1)))
        rows = rows if device.type == "cpu" else rows.to(device)
        data[key] = rows if len(lead) == 1 else rows.view(*lead, *rows.shape[1:])
    return data
