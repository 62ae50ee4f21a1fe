"""Running statistics of observations and rewards: saved with the run, still in evaluation, blind to masked steps."""

from collections.abc import Callable

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import gaps, spaces
from rlkit.api import Env
from rlkit.returns import backward_scan

EPS, LIMIT = 1e-8, 10.0  # ε, and the bound of what is normalized


class Moments(nn.Module):
    """Running mean and variance in double precision, one batch at a time.

    With n_a, M_a, S_a (count, mean, Σ(x − mean)²) so far and n_b, M_b, S_b of a batch, d = M_b − M_a, n = n_a + n_b:
    M = M_a + d·n_b/n,  S = S_a + S_b + d²·n_a·n_b/n. Chan, Golub & LeVeque (1983), doi:10.1080/00031305.1983.10483115;
    for one element at a time it is Welford (1962), doi:10.1080/00401706.1962.10490022.
    """

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(size, dtype=torch.float64))

    @torch.no_grad()
    def add(self, x: Tensor) -> None:
        """Count a batch [n, size]; an empty one changes nothing."""
        if not len(x):
            return
        x = x.double()
        mean, total = x.mean(0), self.count + len(x)
        gap = mean - self.mean
        self.squares += (x - mean).square().sum(0) + gap.square() * self.count * len(x) / total
        self.mean += gap * len(x) / total
        self.count.copy_(total)

    def variance(self) -> Tensor:
        """Σ(x − mean)² / n, and 1 before anything was counted. [size]"""
        return self.squares / self.count if self.count else torch.ones_like(self.squares)


class Normalizer(nn.Module):
    """clip((x − mean) / √(var + ε), ±10) with the mean and variance of what was acted on. x: [..., size].

    `observe` adds to the totals, `refresh` puts them to use. The loop refreshes once an iteration, before anyone acts:
    acting and learning see the same numbers, and evaluating changes none. Before the first the mean is 0, the scale 1.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.totals = Moments(size)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * self.scale).clamp(-LIMIT, LIMIT)

    def on_arrays(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """The same as a function of arrays, with the numbers as they are now."""
        mean, scale = self.mean.numpy(), self.scale.numpy()
        return lambda x: np.clip((x - mean) * scale, -LIMIT, LIMIT)

    def observe(self, x: Tensor, mask: Tensor) -> None:
        """Count the observations where the policy acted. x: [..., size], mask: [...]."""
        self.totals.add(x[mask])

    @torch.no_grad()
    def refresh(self) -> None:
        """Adopt what was observed so far."""
        if self.totals.count:
            self.mean.copy_(self.totals.mean)
            self.scale.copy_((self.totals.variance() + EPS).rsqrt())


def normalizer_for(env: Env, wanted: bool) -> Normalizer | None:
    """A normalizer of the environment's observations; None where it is not wanted, or where they are discrete."""
    space = env.observation_space
    if not wanted or not isinstance(space, Box) or spaces.dtype(space) != np.float32:
        return None
    return Normalizer(spaces.width(space)).to(env.device)


class RewardScale(nn.Module):
    """clip(r_t / √(var(R) + ε), ±10) with the running discounted return R_t = r_t + γ·(1 − done_{t−1})·R_{t−1}.

    t counts the acted steps (see gaps.py). The return is carried from rollout to rollout; its variance is that of all
    acted steps so far, this rollout's included. Rewards are not shifted: what is optimal stays so where none is
    clipped. Rare rewards are, and then count alike. From the PPO of OpenAI Baselines (Engstrom et al. 2020,
    arXiv:2005.12729).
    """

    carry: Tensor

    def __init__(self, rows: int, gamma: float, device: str | torch.device = "cpu") -> None:
        super().__init__()
        self.gamma = gamma
        self.totals = Moments(1)
        self.register_buffer("carry", torch.zeros(rows, dtype=torch.float64))
        self.to(device)

    @torch.no_grad()
    def forward(self, rollout: TensorDict) -> Tensor:
        """Count the rollout's rewards [rows, T] and return them scaled. Called once a rollout."""
        reward, done, mask = rollout["reward"], rollout["done"], rollout["mask"]
        start = reward.double() * mask
        if gaps.gapped(mask, done):
            acted = gaps.Acted(mask, done)
            start = acted.back(acted.total(reward.double()))  # what a gap earns belongs to the acted step before it
        decay = self.gamma ** mask.double() * ~done  # of the return at t on the way to t + 1; a gap discounts nothing
        start[:, 0] += self.carry
        before = torch.cat([torch.zeros_like(decay[:, :1]), decay[:, :-1]], -1)
        running = backward_scan(start.flip(-1), before.flip(-1)).flip(-1)
        self.carry.copy_(decay[:, -1] * running[:, -1])
        self.totals.add(running[mask].unsqueeze(-1))
        scale = (self.totals.variance() + EPS).rsqrt().to(reward.dtype)
        scaled: Tensor = (reward * scale).clamp(-LIMIT, LIMIT)
        return scaled
