"""A table on its map: what each state is worth, what is done there, and what would be best."""

from typing import TypedDict

import torch
from torch import Tensor

from rlkit import exact
from rlkit.control.tabular import Grid, Layer
from rlkit.exact import Model
from rlkit.policies import Table


class Optimal(TypedDict):
    values: list[float]
    q: list[list[float]]
    best: list[list[bool]]


class Choices(TypedDict):
    """One layer of the map: its values, and the cell that each stands for."""

    name: str
    choices: list[str]
    cells: list[list[int] | None]


class World(TypedDict):
    """The map as the page draws it, and the optimal values and actions on it."""

    rows: int
    columns: int
    moves: list[list[int]]
    actions: list[str]
    cells: dict[str, list[int]]  # what can be moved
    marks: dict[str, list[list[int]]]  # what cannot
    walls: list[list[list[int]]]
    layers: list[Choices]
    terminal: list[bool]
    closed: list[bool]  # states that no episode comes to
    worth: list[float]
    scale: float
    optimal: Optimal


class Outcome(TypedDict):
    """One way that an action may end."""

    probability: float
    reward: float
    state: int
    value: float  # V(s') as it is now
    over: bool


class Backup(TypedDict):
    """What one action is worth by the model and the values as they are now."""

    outcomes: list[Outcome]
    sum: float  # Σ p·(r + γ·V(s'))
    q: float  # Q(s, a) as the table has it


def world(grid: Grid, model: Model, gamma: float) -> World:
    """The map, and the optimal values and actions on it."""
    best = exact.optimal_values(model, gamma)
    optimal = Optimal(
        values=best.tolist(),
        q=exact.q_values(model, best, gamma).tolist(),
        best=exact.optimal_actions(model, gamma).tolist(),
    )
    worth = _worth(model)
    return {
        "rows": grid.rows,
        "columns": grid.columns,
        "moves": [list(move) for move in grid.moves],
        "actions": list(grid.actions) or [str(a) for a in range(len(grid.moves))],
        "cells": {name: list(cell) for name, cell in grid.cells.items()},
        "marks": {name: [list(cell) for cell in cells] for name, cells in grid.marks.items()},
        "walls": [[list(cell) for cell in pair] for pair in grid.walls],
        "layers": [_choices(layer) for layer in grid.layers],
        "terminal": model.terminal.tolist(),
        "closed": (~exact.reachable(model) & ~model.terminal).tolist(),
        "worth": worth.tolist(),
        "scale": max(float(worth.abs().max()), float(best.abs().max())) or 1.0,
        "optimal": optimal,
    }


def learned(policy: Table) -> Optimal:
    """V, Q and the greedy actions, ties included; where a policy is kept beside the table, its values and actions."""
    q = policy.q.weight.detach().cpu()
    return Optimal(values=policy.state_values().cpu().tolist(), q=q.tolist(), best=policy.best().cpu().tolist())


def backups(policy: Table, model: Model, gamma: float, state: int) -> list[Backup]:
    """Each action of a state: its outcomes, and their sum, which the next sweep writes into the table."""
    values, q = policy.state_values().cpu().double(), policy.q.weight.detach().cpu()[state]
    totals = exact.q_values(model, values, gamma)[state]
    found: list[Backup] = []
    for action, chances in enumerate(model.transition[state]):
        ways = chances.nonzero().flatten().tolist()
        outcomes = [_outcome(model, values, state, action, way) for way in ways]
        found.append(Backup(outcomes=outcomes, sum=float(totals[action]), q=float(q[action])))
    return found


def _outcome(model: Model, values: Tensor, state: int, action: int, after: int) -> Outcome:
    paid = model.reward[state, action] if model.outcome_reward is None else model.outcome_reward[state, action, after]
    return Outcome(
        probability=float(model.transition[state, action, after]),
        reward=float(paid),
        state=after,
        value=float(values[after]),
        over=bool(model.terminal[after]),
    )


def _choices(layer: Layer) -> Choices:
    cells = [None if cell is None else list(cell) for cell in layer.choices.values()]
    return Choices(name=layer.name, choices=list(layer.choices), cells=cells)


def distance(policy: Table, optimal: Tensor, model: Model) -> float:
    """max_s |V(s) − V*(s)| over the states where something can still be done."""
    return float(((policy.state_values().cpu().double() - optimal).abs() * ~model.terminal).max())


def _worth(model: Model) -> Tensor:
    """What arriving in a terminal state earns, of the possible ways there the largest; elsewhere 0. [S]"""
    if model.outcome_reward is None:
        return torch.zeros_like(model.start)
    earned = torch.where(model.transition > 0, model.outcome_reward, 0.0).flatten(0, 1)  # [S·A, S]
    largest = earned.gather(0, earned.abs().argmax(0, keepdim=True))[0]
    return largest * model.terminal
