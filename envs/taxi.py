"""Taxi from Gymnasium's own table of transitions, stepped as a batch."""

from dataclasses import dataclass

import torch
from gymnasium.envs.toy_text.taxi import TaxiEnv

from rlkit.api import Count
from rlkit.control import Luck, Painter, TabularEnv, from_outcomes
from rlkit.fields import Copies


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
    return TabularEnv(model, config.rows, seed, device, config.step_limit, source, picture=picture, luck=config.luck)
