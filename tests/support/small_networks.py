"""Small networks whose gradients are computed by hand and by autograd, and how far the two may be apart."""

import itertools

import torch
from torch import nn

from rlkit.policies.perceptron import Perceptron

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}


def network(activation: type[nn.Module], *sizes: int, dtype: torch.dtype = torch.float64) -> Perceptron:
    torch.manual_seed(sum(sizes))
    layers: list[nn.Module] = []
    for n, m in itertools.pairwise(sizes):
        layers += [nn.Linear(n, m, dtype=dtype), activation()]
    return Perceptron(*layers[:-1])
