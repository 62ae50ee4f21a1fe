"""Copies of one problem stepped together in numpy: starts, seeds and the step limit; a subclass adds the physics."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

Array = np.ndarray


class Painter:
    """Draws a state [H, W, 3] by putting it into Gymnasium's own environment `name`; needs pygame."""

    def __init__(self, name: str, attribute: str = "state", **kwargs: Any) -> None:
        self.name, self.attribute, self.kwargs = name, attribute, kwargs
        self.env: gymnasium.Env | None = None  # made for the first picture

    def __call__(self, state: Any) -> Array:
        if self.env is None:
            self.env = gymnasium.make(self.name, render_mode="rgb_array", disable_env_checker=True, **self.kwargs)
            self.env.reset(seed=0)
        setattr(self.env.unwrapped, self.attribute, state)
        return np.asarray(self.env.render())


class Batched(VectorEnv):
    """`n` copies with the state [k, n] in float64. Truncated at the step limit; never resets itself."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    picture: Painter | None = None  # what draws the state of one copy

    def __init__(self, n: int, step_limit: int, size: int, observation: Box, action: Space) -> None:
        self.num_envs, self.step_limit = n, step_limit
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space, self.action_space = batch_space(observation, n), batch_space(action, n)
        self.state, self.steps = np.zeros((size, n)), np.zeros(n, dtype=np.int64)
        self._start, self._seeds = np.zeros((size, n)), [-1] * n  # drawn anew only for a new seed

    def start(self, draw: np.random.Generator) -> Any:
        """The first state [k] of an episode, drawn as Gymnasium draws it."""
        raise NotImplementedError

    def advance(self, actions: Array) -> tuple[Array, Array]:
        """Move `state` one step on; returns reward [n] and terminated [n]."""
        raise NotImplementedError

    def observe(self) -> Array:
        """A new array [n, d] in float32: the state itself, unless a subclass says otherwise."""
        return self.state.T.astype(np.float32)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start the rows of `options["reset_mask"]` (all without one) from one seed each, as Gymnasium draws it."""
        rows = range(self.num_envs) if options is None else np.flatnonzero(options["reset_mask"])
        for row in rows:
            if self._seeds[row] != seed[row]:
                self._seeds[row] = seed[row]
                self._start[:, row] = self.start(np.random.Generator(np.random.PCG64(seed[row])))
            self.state[:, row], self.steps[row] = self._start[:, row], 0
        return self.observe(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Observation, reward, terminated and truncated of every copy."""
        reward, terminated = self.advance(actions)
        self.steps += 1
        return self.observe(), reward, terminated, self.steps >= self.step_limit, {}

    def render(self) -> tuple[Array, ...]:
        """A picture [H, W, 3] of each copy."""
        if self.picture is None:
            raise NotImplementedError("this environment has no picture")
        return tuple(self.picture(state.copy()) for state in self.state.T)
