"""Plays control problems: vector environments, physics in batches, tabular models, pictures of an episode."""

from rlkit.control.contract import check_copies
from rlkit.control.env import ControlEnv
from rlkit.control.lesson import Lesson
from rlkit.control.numpy_env import Batched, Painter
from rlkit.control.tabular import Cell, Grid, Layer, Outcomes, TabularEnv, TabularVectorEnv, from_outcomes
from rlkit.control.vector import Array, Copies, Luck

__all__ = [
    "Array",
    "Batched",
    "Cell",
    "ControlEnv",
    "Copies",
    "Grid",
    "Layer",
    "Lesson",
    "Luck",
    "Outcomes",
    "Painter",
    "TabularEnv",
    "TabularVectorEnv",
    "check_copies",
    "from_outcomes",
]
