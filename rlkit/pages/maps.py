"""A table on its map: what each state is worth, what is done there, and what would be best."""

from typing import Any

import torch
from torch import Tensor, nn

from rlkit import exact
from rlkit.exact import Model


def is_table(policy: Any) -> bool:
    """Whether a policy keeps Q[s, a] as a table, one row a state."""
    return isinstance(getattr(policy, "q", None), nn.Embedding)


def world(env: Any, gamma: float) -> dict[str, Any]:
    """The map, and the optimal values and actions on it."""
    grid, model = env.grid, env.model()
    best = exact.optimal_values(model, gamma)
    optimal = {"values": best, "q": exact.q_values(model, best, gamma), "best": exact.optimal_actions(model, gamma)}
    worth = _worth(model)
    return {
        "rows": grid.rows,
        "columns": grid.columns,
        "moves": [list(move) for move in grid.moves],
        "cells": {name: list(cell) for name, cell in grid.cells.items()},
        "terminal": model.terminal.tolist(),
        "worth": worth.tolist(),
        "scale": max(float(worth.abs().max()), float(best.abs().max())) or 1.0,
        "optimal": {key: x.tolist() for key, x in optimal.items()},
    }


def values(policy: Any) -> Tensor:
    """V(s) = max_a Q(s, a); where a policy is kept apart from the table, that policy's Q(s, π(s)). [S]"""
    q = policy.q.weight.detach().cpu()
    chosen = getattr(policy, "actions", None)
    return q.amax(-1) if chosen is None else q.gather(-1, chosen.cpu().unsqueeze(-1)).squeeze(-1)


def learned(policy: Any) -> dict[str, Any]:
    """V, Q and the greedy actions, ties included; where a policy is kept apart from the table, its actions."""
    q, value = policy.q.weight.detach().cpu(), values(policy)
    rounding = 64 * torch.finfo(q.dtype).eps * max(1.0, float(q.abs().max()))
    best = q >= value.unsqueeze(-1) - rounding
    if hasattr(policy, "actions"):
        best = nn.functional.one_hot(policy.actions.cpu(), q.shape[-1]).bool()
    return {"values": value.tolist(), "q": q.tolist(), "best": best.tolist()}


def distance(policy: Any, optimal: Tensor, model: Model) -> float:
    """max_s |V(s) − V*(s)| over the states where something can still be done."""
    return float(((values(policy).double() - optimal).abs() * ~model.terminal).max())


def _worth(model: Model) -> Tensor:
    """What arriving in a terminal state earns, of the possible ways there the largest; elsewhere 0. [S]"""
    if model.outcome_reward is None:
        return torch.zeros_like(model.start)
    earned = torch.where(model.transition > 0, model.outcome_reward, 0.0).flatten(0, 1)  # [S·A, S]
    largest = earned.gather(0, earned.abs().argmax(0, keepdim=True))[0]
    return largest * model.terminal
