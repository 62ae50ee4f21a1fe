"""A grid with a cell worth +1 and a trap worth -1, both terminal; everything else earns nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rlkit import memory
from rlkit.api import Count, Fraction, UserError
from rlkit.control import Cell, Grid, Luck, TabularEnv, from_outcomes
from rlkit.fields import Copies

MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up, as in FrozenLake
ACTIONS = ("left", "down", "right", "up")


@dataclass(frozen=True)
class Config:
    rows: Copies = 8  # copies played side by side
    size: Count = 8  # cells along each side
    goal: Cell = (7, 7)  # goal, reward +1: [row, column], from [0, 0] at the top left
    trap: Cell = (4, 4)  # trap, reward -1: [row, column]
    start: Cell | Literal["uniform"] = "uniform"  # [row, column], or uniform over all cells that are not terminal
    slip: Fraction = 0.0  # probability of moving to either side of the intended direction, half each
    step_limit: Count = 100  # steps after which an episode is truncated
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset


def arrivals(cell: Cell, action: int, config: Config) -> Iterator[tuple[float, Cell]]:
    """(probability, cell) for each direction a move may take; a wall leaves it where it is."""
    for turn, probability in ((0, 1 - config.slip), (-1, config.slip / 2), (1, config.slip / 2)):
        move = MOVES[(action + turn) % 4]
        row, column = (min(max(at + by, 0), config.size - 1) for at, by in zip(cell, move, strict=True))
        if probability > 0:
            yield probability, (row, column)


def check(config: Config) -> None:
    """Raises: UserError where a given cell lies outside the grid, or two of them are the same."""
    cells = {"goal": config.goal, "trap": config.trap}
    if config.start != "uniform":
        cells["start"] = config.start
    for name, cell in cells.items():
        if not all(0 <= at < config.size for at in cell):
            raise UserError(
                f"env.{name}={list(cell)} lies outside the grid: rows and columns are 0 to {config.size - 1}"
            )
    if len(set(cells.values())) < len(cells):
        given = ", ".join(f"env.{name}={list(cell)}" for name, cell in cells.items())
        raise UserError(f"two of {given} are the same cell: move one of them")


def make(config: Config, seed: int, device: str | torch.device) -> TabularEnv:
    """Gridworld: find the shortest way to the goal around the trap."""
    check(config)
    memory.check(96 * config.size**4, f"env.size={config.size}", "give a smaller one")  # a table [S, A, S], thrice
    n, worth = config.size, {config.goal: 1.0, config.trap: -1.0}
    cells = [(row, column) for row in range(n) for column in range(n)]
    outcomes = {
        s: {
            a: [(1.0, s, 0.0, True)]
            if cell in worth
            else [(p, to[0] * n + to[1], worth.get(to, 0.0), to in worth) for p, to in arrivals(cell, a, config)]
            for a in range(4)
        }
        for s, cell in enumerate(cells)
    }
    starts = [cell not in worth if config.start == "uniform" else cell == config.start for cell in cells]
    model = from_outcomes(outcomes, [x / sum(starts) for x in starts], [cells.index(config.goal)])
    source = f"gridworld {n}×{n}"
    grid = Grid(n, n, MOVES, {"goal": config.goal, "trap": config.trap}, ACTIONS)
    picture = partial(draw, config)
    return TabularEnv(
        model, config.rows, seed, device, config.step_limit, source, picture=picture, grid=grid, luck=config.luck
    )


def draw(config: Config, state: int) -> NDArray[np.uint8]:
    """The grid with its goal (green), its trap (red) and the walker (blue); [H, W, 3]."""
    from PIL import Image, ImageDraw

    n, side = config.size, max(8, 400 // config.size)  # pixels of a cell
    image = Image.new("RGB", (n * side + 1, n * side + 1), "white")
    pen, colors = ImageDraw.Draw(image), {config.goal: "#74c476", config.trap: "#fb6a4a"}
    for row in range(n):
        for column in range(n):
            box = (column * side, row * side, (column + 1) * side, (row + 1) * side)
            pen.rectangle(box, fill=colors.get((row, column), "white"), outline="#b0b0b0")
    row, column = divmod(state, n)
    left, top, margin = column * side, row * side, side // 5
    pen.ellipse((left + margin, top + margin, left + side - margin, top + side - margin), fill="#3182bd")
    return np.asarray(image)
