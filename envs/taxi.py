"""Taxi from Gymnasium's own table of transitions, stepped as a batch."""

from dataclasses import dataclass

import torch
from gymnasium.envs.toy_text.taxi import TaxiEnv

from rlkit.api import Count
from rlkit.control import Cell, Grid, Layer, Luck, Painter, TabularEnv, from_outcomes
from rlkit.fields import Copies

PLACES: dict[str, Cell | None] = {"red": (0, 0), "green": (0, 4), "yellow": (4, 0), "blue": (4, 3)}
WALLS = (((0, 1), (0, 2)), ((1, 1), (1, 2)), ((3, 0), (3, 1)), ((3, 2), (3, 3)), ((4, 0), (4, 1)), ((4, 2), (4, 3)))
GRID = Grid(
    5,
    5,
    ((1, 0), (-1, 0), (0, 1), (0, -1), (0, 0), (0, 0)),
    actions=("down", "up", "right", "left", "pick up", "drop off"),
    marks={name: (cell,) for name, cell in PLACES.items() if cell},
    layers=(Layer("passenger", {**PLACES, "in the taxi": None}), Layer("destination", PLACES)),
    walls=WALLS,
)


@dataclass(frozen=True)
class Config:
    rows: Copies = 8  # copies played side by side
    rainy: bool = False  # moves may drift to either side
    step_limit: Count = 200  # steps after which an episode is truncated; Gymnasium's own limit
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset


def make(config: Config, seed: int, device: str | torch.device) -> TabularEnv:
    """Taxi: fetch the passenger and drop them at their hotel (+20); -1 a step, -10 for a wrong stop.

    Dietterich 2000, arXiv:cs/9905014. 500 states, of which an episode comes to 404.
    """
    taxi = TaxiEnv(is_rainy=config.rainy)
    model = from_outcomes(taxi.P, taxi.initial_state_distrib.tolist())
    source, picture = "Taxi, Gymnasium's table", Painter("Taxi-v4", "s")
    limit = config.step_limit
    return TabularEnv(model, config.rows, seed, device, limit, source, picture=picture, grid=GRID, luck=config.luck)
