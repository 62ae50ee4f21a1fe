"""Copies of one problem stepped together in numpy: starts, seeds and the step limit; a subclass adds the physics."""

from collections.abc import Sequence

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from rlkit.control.vector import Array, Vector


class Painter:
    """Draws a state [H, W, 3] by putting it into Gymnasium's own environment `name`; needs pygame."""

    def __init__(self, name: str, attribute: str = "state", **kwargs: object) -> None:
        self.name, self.attribute, self.kwargs = name, attribute, kwargs
        self.env: gymnasium.Env[object, object] | None = None  # made for the first picture

    def __call__(self, state: object) -> Array:
        if self.env is None:
            self.env = gymnasium.make(
                self.name, max_episode_steps=None, disable_env_checker=True, render_mode="rgb_array", **self.kwargs
            )
            self.env.reset(seed=0)
        setattr(self.env.unwrapped, self.attribute, state)
        return np.asarray(self.env.render())


class Batched(Vector):
    """`n` copies with the state [k, n] in float64. Truncated at the step limit; never resets itself."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    picture: Painter | None = None  # what draws the state of one copy

    def __init__(self, n: int, step_limit: int, size: int, observation: Box, action: Box | Discrete) -> None:
        self.num_envs, self.step_limit = n, step_limit
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space, self.action_space = batch_space(observation, n), batch_space(action, n)
        self.state, self.steps = np.zeros((size, n)), np.zeros(n, dtype=np.int64)
        self._start, self._seeds = np.zeros((size, n)), [-1] * n  # drawn anew only for a new seed
        self._seen: Array = np.empty(0)  # what all copies saw last

    def start(self, draw: np.random.Generator) -> ArrayLike:
        """The first state [k] of an episode, drawn as Gymnasium draws it."""
        raise NotImplementedError

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Move `state` one step on; returns reward [n] and terminated [n]."""
        raise NotImplementedError

    def observe(self) -> Array:
        """A new array [n, d] in float32: the state itself, unless a subclass says otherwise."""
        return self.state.T.astype(np.float32)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, object] | None = None
    ) -> tuple[Array, dict[str, object]]:
        """Start the rows of `options["reset_mask"]` (all without one) from one seed each, as Gymnasium draws it."""
        if not isinstance(seed, Sequence):
            raise ValueError(f"seed={seed}: give one for each of the {self.num_envs} copies")
        rows = range(self.num_envs) if options is None else np.flatnonzero(np.asarray(options["reset_mask"])).tolist()
        for row in rows:
            if self._seeds[row] != seed[row]:
                self._seeds[row] = seed[row]
                self._start[:, row] = self.start(np.random.Generator(np.random.PCG64(seed[row])))
            self.state[:, row], self.steps[row] = self._start[:, row], 0
        before, self._seen = self._seen, self.observe()
        if options is not None:  # the others see what they saw, also where `observe` draws noise
            others = ~np.asarray(options["reset_mask"])
            self._seen[others] = before[others]
        return self._seen, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, object]]:
        """Observation, reward, terminated and truncated of every copy."""
        reward, terminated = self.advance(actions)
        self.steps += 1
        self._seen = self.observe()
        return self._seen, reward, terminated, self.steps >= self.step_limit, {}

    def render(self) -> tuple[Array, ...]:
        """A picture [H, W, 3] of each copy."""
        if self.picture is None:
            raise NotImplementedError("this environment has no picture")
        return tuple(self.picture(state.copy()) for state in self.state.T)
