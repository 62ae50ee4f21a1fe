"""Games of several agents that act at once (PettingZoo's parallel API), with a row for each agent."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from rlkit.control.contract import check_ends, check_paid
from rlkit.control.vector import Array, Vector
from rlkit.errors import UserError
from rlkit.spaces import REST

Game = Any  # a pettingzoo.ParallelEnv, which is imported where it is asked for
NUMBER = "agent"  # key of an observation: which agent it is of


class Together(Vector):
    """`n` rows: the agents of n / agents copies of a game, side by side. Never resets itself.

    An agent that leaves is done there, terminated or truncated as the game says; its row waits until the others have
    left, too. All are there from the reset on.
    anew: each episode has a game of its own, for games whose reset does not forget the episode before.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(
        self,
        make: Callable[[], Game],
        n: int,
        called: str,
        numbered: bool = False,
        anew: bool = False,
        step_limit: int = 0,
    ) -> None:
        first = make()
        self.make, self.anew, self.called = make, anew, called
        self.limit = step_limit or math.inf
        if step_limit:
            self.step_limit = step_limit  # which `rlkit.control.requirements.step_limit` looks for
        self.names = [*first.possible_agents]
        self.agents, self.num_envs, self.spec = len(self.names), n, None
        self.games = [first, *(make() for _ in range(n // self.agents - 1))]
        self.numbered = numbered
        seen, self.single_action_space = alike(first, called)
        parts = seen.spaces if isinstance(seen, Dict) else {REST: seen}
        if numbered and NUMBER in parts:
            raise UserError(
                f"{called}: env.agent_number=true would take the place of the part {NUMBER} that observations have: "
                "leave it out, or give that part another name"
            )
        self.single_observation_space = Dict({**parts, NUMBER: Discrete(self.agents)}) if numbered else seen
        self.nested = isinstance(seen, Dict)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.acting, self.left = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        self.steps = np.zeros(len(self.games), dtype=np.int64)
        self.seen: list[Any] = [zero(self.single_observation_space)] * n

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the copies of the rows of `options["reset_mask"]` (all without one), each from its first row's seed."""
        if not isinstance(seed, Sequence):
            raise ValueError(f"seed={seed}: give one for each of the {self.num_envs} rows")
        rows = np.ones(self.num_envs, dtype=bool) if options is None else np.asarray(options["reset_mask"])
        for copy in np.flatnonzero(rows[:: self.agents]).tolist():
            start = copy * self.agents
            own = slice(start, start + self.agents)
            self.seen[own] = [zero(self.single_observation_space)] * self.agents
            if self.anew:
                self.games[copy].close()
                self.games[copy] = self.make()
            observations, _ = self.games[copy].reset(seed=seed[start])
            if late := [name for name in self.names if name not in self.games[copy].agents]:
                raise UserError(
                    f"{self.called}: {late[0]} is not in the game after its reset, and each agent is a row from there "
                    "on: let all begin together, in a game of your own by env.entry=MODULE:NAME"
                )
            self._look(copy, observations, self.names, "reset")
            self.steps[copy], self.left[own], self.acting[own] = 0, False, True
        return self._observed(), {}

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """One step of every copy, by the actions of the agents that are in the game."""
        reward = np.zeros(self.num_envs)
        ends = np.zeros((2, self.num_envs), dtype=bool)
        chosen, before = list(iterate(self.action_space, actions)), self.acting.copy()
        for copy, game in enumerate(self.games):
            rows = range(copy * self.agents, (copy + 1) * self.agents)
            here = dict(zip(self.names, rows, strict=True))
            given = {name: chosen[row] for name, row in here.items() if before[row]}
            if not given:  # a copy that ended waits for its reset
                continue
            self.steps[copy] += 1
            observations, rewards, terminated, truncated, _ = game.step(dict(given))  # some take the actions out of it
            check_paid(rewards, given, self.called)
            for name, row in here.items():
                if name in given:
                    reward[row] = rewards[name]
                    over = terminated.get(name, False), truncated.get(name, False)
                    check_ends(*over, self.called)
                    ends[:, row] = over
                    ends[1, row] |= self.steps[copy] >= self.limit
                    self.left[row] = ends[:, row].any()
                self.acting[row] = name in game.agents and not self.left[row]
            needed = [name for name, row in here.items() if self.acting[row] or (name in given and not ends[0, row])]
            self._look(copy, observations, needed, "step")
        ends[1] |= before & ~self.acting & ~ends[0]  # it left, and nothing said how
        return self._observed(), reward, ends[0], ends[1] & ~ends[0], {}

    def render(self) -> tuple[Any, ...]:
        """A picture [H, W, 3] of each copy, in the place of its first row."""
        return tuple(game.render() for game in self.games)

    def close_extras(self, **kwargs: Any) -> None:
        for game in self.games:
            game.close()

    def _look(self, copy: int, observations: dict[Any, Any], here: Sequence[Any], what: str) -> None:
        """Keep what each agent of a copy sees; those `here` have to see something.

        So has one that was truncated: its value goes on from there.
        """
        if blind := [name for name in here if name not in observations]:
            raise UserError(
                f"{self.called}: {what} gave no observation of {blind[0]}, which was not terminated: "
                "return one of each agent that plays on or was truncated"
            )
        for number, name in enumerate(self.names):
            if name in observations:
                seen = observations[name]
                if self.numbered:
                    seen = {**(seen if self.nested else {REST: seen}), NUMBER: number}
                self.seen[copy * self.agents + number] = seen

    def _observed(self) -> Any:
        out: Any = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, self.seen, out)


def zero(space: Any) -> Any:
    """What stands for the observation of an agent that was not in the game."""
    return next(iter(iterate(batch_space(space, 1), create_empty_array(space, 1, fn=np.zeros))))


def alike(game: Game, called: str) -> tuple[Any, Any]:
    """The spaces of an observation and of an action that all agents have.

    Raises: UserError that says which agents differ, and in what.
    """
    first, *others = game.possible_agents
    found = game.observation_space(first), game.action_space(first)
    for other in others:
        spaces = game.observation_space(other), game.action_space(other)
        for what, ours, theirs in zip(("observations", "actions"), found, spaces, strict=True):
            if ours != theirs:
                raise UserError(
                    f"{called}: agents share one policy, and {first} has the {what} {ours}, {other} {theirs}: wrap the "
                    "game so that they are the same, and give it as env.entry=MODULE:NAME"
                )
    return found
