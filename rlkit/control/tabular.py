"""Environments that are stepped from their model, and judged by it."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Literal

import numpy as np
import torch
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rlkit import exact, memory
from rlkit.api import Plays, Remembers
from rlkit.control.env import ControlEnv
from rlkit.control.requirements import acting
from rlkit.control.vector import Array, Luck, Vector
from rlkit.errors import UserError, one_line
from rlkit.exact import Model
from rlkit.policies.base import measured
from rlkit.policies.tables import ValueTable
from rlkit.scores import Reference

CLOSE = 1e-6  # what rounding may add to a sum of probabilities
FORM = (Real, Integral, Real, bool | np.bool_)  # of an outcome

Cell = tuple[int, int]
Outcomes = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]


@dataclass(frozen=True)
class Layer:
    """A part of the state besides its cell, such as where the passenger of a taxi is."""

    name: str
    choices: Mapping[str, Cell | None]  # its values in order; the cell that each stands for, if it is one


@dataclass(frozen=True)
class Grid:
    """How states lie on a map, row by row from the top left: what `rlkit.play` draws.

    With layers a cell has as many states as their values can be combined, side by side and the last layer fastest.
    """

    rows: int
    columns: int
    moves: tuple[Cell, ...]  # of each action: rows and columns that it goes; (0, 0) for what is done in place
    cells: Mapping[str, Cell] = field(default_factory=dict)  # fields of the Config that say where something lies
    actions: tuple[str, ...] = ()  # their names
    marks: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)  # what else lies there, and cannot be moved
    layers: tuple[Layer, ...] = ()
    walls: tuple[tuple[Cell, Cell], ...] = ()  # pairs of neighbors between which nobody can pass


def from_outcomes(outcomes: Outcomes, start: Sequence[float], goal: Sequence[int] = ()) -> Model:
    """A model from Gymnasium's form: `outcomes[s][a]` lists (probability, next state, reward, terminated).

    Several rewards of one action for one next state become their mean, which is also what play pays.

    Raises: UserError where this is not a model, such as probabilities that do not add up to 1.
    """
    check_outcomes(outcomes, start, goal)
    states, actions = len(outcomes), len(outcomes[0])
    transition = torch.zeros(states, actions, states, dtype=torch.float64)
    earned = torch.zeros_like(transition)
    terminal, reached = torch.zeros(2, states, dtype=torch.bool)
    for s, row in outcomes.items():
        for a, possible in row.items():
            for probability, successor, reward, terminated in possible:
                transition[s, a, successor] += probability
                earned[s, a, successor] += probability * reward
                terminal[successor] |= bool(terminated)
    reached[list(goal)] = True
    outcome_reward = torch.where(transition > 0, earned / transition, 0.0)
    first = torch.as_tensor(start, dtype=torch.float64).clone()
    model = Model(transition, earned.sum(-1), terminal, first, outcome_reward, reached)
    check_model(model, outcomes)
    return model


def check_outcomes(outcomes: Outcomes, start: Sequence[float], goal: Sequence[int]) -> None:
    """Raises: UserError where states or actions are not counted from 0, or something is not a number."""
    check_form(outcomes, start, goal)
    states, actions = range(len(outcomes)), range(len(outcomes.get(0, ())))
    if not actions or outcomes.keys() != {*states}:
        raise UserError(f"the states of the outcomes are {[*outcomes][:5]} and so on: count them from 0")
    if len(start) != len(states) or not {*goal} <= {*states}:
        raise UserError(
            f"start has {len(start)} numbers, goal is {[*goal]}, and there are {len(states)} states: give start a "
            "number for each, and goal some of them"
        )
    for s, row in outcomes.items():
        if strange := [a for a in row if a not in actions]:
            raise UserError(f"state {s} has an action {strange[0]}, and state 0 has {len(actions)}: give all the same")
        for a, possible in row.items():
            for _, successor, reward, _ in possible:
                if successor not in states or not math.isfinite(reward):
                    raise UserError(
                        f"state {s}, action {a} leads to state {successor} with the reward {reward}: give a state of "
                        f"0 to {states[-1]}, and a number that is finite"
                    )


def check_form(outcomes: object, start: object, goal: object) -> None:
    """Raises: UserError where the outcomes are not nested as Gymnasium's, or start and goal are not lists."""
    for name, given in (("start", start), ("goal", goal)):
        if not isinstance(given, Collection):
            raise UserError(f"{name}={given!r} is not a list: give start a number for each state, and goal some states")
    rows = outcomes.values() if isinstance(outcomes, Mapping) else [outcomes]
    told = "give {state: {action: [(probability, next state, reward, terminated), ...]}}"
    for row in rows:
        if not isinstance(row, Mapping):
            raise UserError(f"the outcomes hold a {type(row).__name__} in place of a mapping: {told}")
        for a, possible in row.items():
            for outcome in possible if isinstance(possible, list | tuple) else [possible]:
                many = len(outcome) if isinstance(outcome, list | tuple) else 0
                if many != 4 or not all(map(isinstance, outcome, FORM)):
                    raise UserError(f"action {a} has the outcome {one_line(outcome)}: {told}")


def check_model(model: Model, outcomes: Outcomes) -> None:
    """Raises: UserError where playing the model and computing from it would disagree."""
    for s, row in outcomes.items():
        for a in range(model.reward.shape[1]):
            chances = [outcome[0] for outcome in row.get(a, ())]
            if not (min(chances, default=0) >= 0 and abs(sum(chances) - 1) <= CLOSE):  # NaN is neither
                raise UserError(
                    f"the probabilities of state {s}, action {a} are {chances}: "
                    "give what is at least 0 and adds up to 1"
                )
    start = model.start
    sure = float(start.min()) >= 0 and abs(float(start.sum()) - 1) <= CLOSE  # False for NaN, too
    if not sure or bool(start[model.terminal].any()):
        raise UserError(
            f"start={start.tolist()}: give each state the probability of a start in it, adding up to 1, "
            "and 0 where the episode is over"
        )
    there = exact.reachable(model) & ~model.terminal  # of a state that nothing leads to a table may say anything
    for s in there.nonzero().flatten().tolist():
        for _, successor, _, terminated in (outcome for row in outcomes[s].values() for outcome in row if outcome[0]):
            if model.terminal[successor] and not terminated:
                raise UserError(
                    f"state {successor} ends the episode after some steps and not after one from state {s}: "
                    "make two states of it"
                )


class TabularVectorEnv(Vector):
    """`n` copies of a model, stepped together; a reset seed fixes the start and all the luck of its episode."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, model: Model, n: int, step_limit: int, picture: Callable[[int], Array] | None = None) -> None:
        states, actions = model.reward.shape
        many = f"a step limit of {step_limit:,} with {n:,} copies"
        memory.check(8 * n * (step_limit + 1), many, "give a smaller limit, or a smaller env.rows")
        self.num_envs, self.step_limit, self.picture = n, step_limit, picture
        self.single_observation_space, self.single_action_space = Discrete(states), Discrete(actions)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self._next, self._start = _cumulative(model.transition), _cumulative(model.start)
        each = model.reward[..., None].expand_as(model.transition)
        self._reward = (each if model.outcome_reward is None else model.outcome_reward).float().numpy()
        self._terminal, self._row = model.terminal.numpy(), np.arange(n)
        self.state, self.steps = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self._luck, self._seeds = np.zeros((n, step_limit + 1)), [-1] * n  # uniform draws: the start, then each step

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, object] | None = None
    ) -> tuple[Array, dict[str, object]]:
        """Start the rows of `options["reset_mask"]` (all without one), each from its own seed."""
        if not isinstance(seed, Sequence):
            raise ValueError(f"seed={seed}: give one for each of the {self.num_envs} copies")
        rows = np.arange(self.num_envs) if options is None else np.flatnonzero(np.asarray(options["reset_mask"]))
        for row in rows.tolist():
            if self._seeds[row] != seed[row]:
                self._seeds[row] = seed[row]
                np.random.Generator(np.random.PCG64(seed[row])).random(out=self._luck[row])
        self.state[rows], self.steps[rows] = (self._start > self._luck[rows, :1]).argmax(-1), 0
        return self.state.copy(), {}

    def reseed(self, seeds: Sequence[int]) -> None:
        """Draw the luck of each copy's episode in progress anew; its state stays."""
        for row, seed in enumerate(seeds):
            self._seeds[row] = -1  # what its reset seed gave is gone
            np.random.Generator(np.random.PCG64(seed)).random(out=self._luck[row])

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, object]]:
        """Draw each successor by inverting its cumulative distribution."""
        self.steps += 1
        luck = self._luck[self._row, self.steps]
        successor = (self._next[self.state, actions] > luck[:, None]).argmax(-1)
        reward = self._reward[self.state, actions, successor]
        self.state = successor
        return successor.copy(), reward, self._terminal[successor], self.steps >= self.step_limit, {}

    def render(self) -> tuple[Array, ...]:
        """A picture [H, W, 3] of each copy."""
        if self.picture is None:
            raise NotImplementedError("this environment has no picture")
        return tuple(self.picture(int(state)) for state in self.state)


def _cumulative(probability: Tensor) -> Array:
    """Cumulative probabilities along the last axis; infinite at the last possible outcome, so no other is drawn."""
    possible = (probability > 0).long()
    later = possible.flip(-1).cumsum(-1).flip(-1) - possible
    return torch.where(later == 0, torch.inf, probability.cumsum(-1)).numpy()


class TabularEnv(ControlEnv):
    """A control environment with a known model. `judge` says what `exact` reports, `picture` draws a state."""

    def __init__(
        self,
        model: Model,
        rows: int,
        seed: int = 0,
        device: str | torch.device = "cpu",
        step_limit: int = 100,
        source: str = "",
        judge: Literal["value", "success"] = "value",
        picture: Callable[[int], Array] | None = None,
        grid: Grid | None = None,
        luck: Luck = "shared",
    ) -> None:
        self._model, self.step_limit, self.judge, self.grid = model, step_limit, judge, grid
        if luck == "own" and bool(((model.transition == 0) | (model.transition == 1)).all()):
            raise UserError(f"env.luck=own changes nothing: {source} leaves nothing to chance; leave it out")
        super().__init__(
            lambda n: TabularVectorEnv(model, n, step_limit, picture), rows, seed, device, source, luck=luck
        )

    def model(self) -> Model:
        return self._model.copied()  # what is played, and compared with, stays what it is

    @property
    def reference(self) -> Reference:
        """The undiscounted return within the step limit of uniformly random actions and of the optimum, computed."""
        model, limit = self._model, self.step_limit
        uniform = torch.full_like(model.reward, 1 / model.reward.shape[1])
        low, high = (float(model.start @ exact.values_within(model, limit, policy)) for policy in (uniform, None))
        return Reference(low, high, "a random policy, exact", "the optimum, exact")

    def exact(self, policy: Plays | Tensor, gamma: float = 0.99) -> dict[str, float]:
        """The value of the greedy policy and the optimal value, both computed from the model.

        `policy` is a table of actions [S], or acts. judge="success": the probability of
        reaching the goal at all and within the step limit. judge="value": discounted value of the start, and the
        fraction of states whose action is an optimal one, of those that an episode can come to. With γ = 1 only the
        step limit bounds a return, so value and optimum are what is earned within it, and an optimal action is one
        that is optimal with all steps left. For a policy that is only evaluated (`ValueTable`) it is how far off the
        learned values are instead. Nothing of a policy with memory: its actions depend on more than the state.
        """
        if isinstance(policy, Remembers) and not policy.memoryless:
            return {}
        if isinstance(policy, ValueTable):
            return self._prediction(policy.probabilities.cpu(), policy.values.cpu(), gamma)
        model, actions, limit = self._model, self._greedy(policy), self.step_limit
        if self.judge == "success":
            return {
                "success": exact.success(model, actions),
                "optimal": exact.optimal_success(model),
                "success_within_limit": exact.success(model, actions, limit),
                "optimal_within_limit": exact.optimal_success(model, limit),
            }
        if gamma == 1:
            value, optimum = exact.values_within(model, limit, actions), exact.values_within(model, limit)
            q = exact.q_values(model, exact.values_within(model, limit - 1), gamma)
        else:
            value, optimum = exact.policy_values(model, actions, gamma), exact.optimal_values(model, gamma)
            q = exact.q_values(model, optimum, gamma)
        best = exact.best_actions(q).gather(1, actions[:, None])[:, 0]
        return {
            "value": float(model.start @ value),
            "optimal": float(model.start @ optimum),
            "agreement": float(best[exact.reachable(model) & ~model.terminal].double().mean()),
        }

    def _prediction(self, probabilities: Tensor, values: Tensor, gamma: float) -> dict[str, float]:
        """The learned and true value of the start, and √mean (V − V_π)² over the states that π can reach."""
        model = self._model
        true = exact.policy_values(model, probabilities, gamma)
        seen = exact.reachable(model, probabilities) & ~model.terminal
        return {
            "value": float(model.start @ values),
            "true_value": float(model.start @ true),
            "rmse": float((values - true)[seen].square().mean().sqrt()),
        }

    def _greedy(self, policy: Plays | Tensor) -> Tensor:
        if isinstance(policy, Tensor):
            return policy.cpu()  # where the model is
        states = torch.arange(len(self._model.start), device=self.device)
        with torch.no_grad(), measured(policy):
            return acting(policy).act(states, greedy=True).cpu()
