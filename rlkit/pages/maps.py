"""A table on its map: what each state is worth, what is done there, and what would be best."""

from typing import TypedDict

import torch
from torch import Tensor

from rlkit import exact
from rlkit.control.tabular import Grid
from rlkit.exact import Model
from rlkit.policies import Table


class Optimal(TypedDict):
    values: list[float]
    q: list[list[float]]
    best: list[list[bool]]


class World(TypedDict):
    """The map as the page draws it, and the optimal values and actions on it."""

    rows: int
    columns: int
    moves: list[list[int]]
    cells: dict[str, list[int]]
    terminal: list[bool]
    worth: list[float]
    scale: float
    optimal: Optimal


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
        "cells": {name: list(cell) for name, cell in grid.cells.items()},
        "terminal": model.terminal.tolist(),
        "worth": worth.tolist(),
        "scale": max(float(worth.abs().max()), float(best.abs().max())) or 1.0,
        "optimal": optimal,
    }


def learned(policy: Table) -> Optimal:
    """V, Q and the greedy actions, ties included; where a policy is kept beside the table, its values and actions."""
    q = policy.q.weight.detach().cpu()
    return Optimal(values=policy.state_values().cpu().tolist(), q=q.tolist(), best=policy.best().cpu().tolist())


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
