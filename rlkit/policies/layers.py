"""What networks of control problems are made of: what encodes an observation, and the layers behind it."""

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlkit import memory, seeding
from rlkit.api import Env
from rlkit.errors import UserError
from rlkit.fields import Count, Needs
from rlkit.policies.normalize import Normalizer
from rlkit.policies.perceptron import Perceptron

MOST_LAYERS = 100


@dataclass(frozen=True)
class Layers:
    """The `policy.` keys that say what networks are made of."""

    hidden: tuple[Count, ...] = (64, 64)  # widths of the hidden layers
    activation: Annotated[Literal["tanh", "relu"], Needs("hidden")] = "tanh"  # activation function between layers
    log_std: Annotated[float, Ge(-20), Le(20)] = 0.0  # initial log standard deviation of continuous actions
    fast: bool = True  # compute small networks on a CPU forward and backward by hand; false: all by autograd
    normalize: bool = False  # bring observations to mean 0 and variance 1 by running statistics


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """A layer with orthogonal weights and zero bias (Saxe et al. 2013, arXiv:1312.6120)."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(
        device="cpu"
    )  # initialized below, from its own generator
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


class OneHot(nn.Module):
    """Discrete observations as indicator vectors, so that the same networks take states."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.states = states

    def forward(self, observation: Tensor) -> Tensor:
        return nn.functional.one_hot(observation, self.states).float()


def encoder(env: Env, normalizer: Normalizer | None = None) -> tuple[int, list[nn.Module]]:
    """What stands before the first layer, and how many numbers it hands on."""
    space = env.observation_space
    if isinstance(space, Discrete):
        return int(space.n), [OneHot(int(space.n))]
    if isinstance(space, Box):
        return math.prod(space.shape), [] if normalizer is None else [normalizer]
    raise UserError(f"observation space {space} is not supported; allowed are Box and Discrete")


def mlp(
    env: Env,
    outputs: int,
    gain: float,
    network: Layers,
    name: str,
    normalizer: Normalizer | None = None,
    actions: int = 0,
) -> Perceptron:
    """A multi-layer perceptron from the env's observations to `outputs`, with its own named initialization.

    actions: so many numbers come with each observation, which then is encoded already.
    """
    generator = seeding.generator(env.seed, "init", name)
    activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[network.activation]
    width, layers = encoder(env, normalizer)
    if actions:
        width, layers = width + actions, []
    sizes = (width, *network.hidden, outputs)
    if len(network.hidden) > MOST_LAYERS:
        raise UserError(f"policy.hidden has {len(network.hidden):,} layers: give at most {MOST_LAYERS}")
    weights = sum(a * b + b for a, b in itertools.pairwise(sizes))
    given = f"policy.hidden={','.join(map(str, network.hidden))} on {width} inputs"
    memory.check(16 * weights, given, "give fewer or smaller layers")  # float32: itself, its gradient, Adam's moments
    for size in network.hidden:
        layers.extend([linear(width, size, 2**0.5, generator), activation()])
        width = size
    return Perceptron(*layers, linear(width, outputs, gain, generator), fast=network.fast).to(env.device)


def unused(key: str, normalizer: Normalizer | None, continuous: bool) -> str:
    """What leaves a key of `Layers` without effect."""
    if key == "log_std" and not continuous:
        return "discrete actions"
    return "discrete observations" if key == "normalize" and normalizer is None else ""
