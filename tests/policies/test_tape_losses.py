"""Losses on the tape: their gradients are autograd's, in the precision of the network."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from rlkit import losses
from rlkit.policies.distributions import pick
from rlkit.policies.perceptron import Perceptron
from rlkit.tape import Tape


@pytest.mark.parametrize("weight_type", [torch.float32, torch.float64])
def test_a_loss_in_double_precision_takes_the_weights_of_a_replay(weight_type: torch.dtype) -> None:
    network = nn.Sequential(nn.Linear(3, 4)).double()
    x, action, target = torch.randn(5, 3).double(), torch.arange(5) % 4, torch.randn(5).double()
    weight = torch.full((5,), 1 / 5, dtype=weight_type)
    (losses.huber(pick(network(x), action), target) * weight).sum().backward()
    wanted = [p.grad for p in network.parameters()]
    network.zero_grad()
    with Tape() as tape:
        loss = losses.weighted(losses.huber(pick(Perceptron(*network)(x), action), target), weight)
    tape.backward(loss)
    for parameter, known in zip(network.parameters(), wanted, strict=True):
        assert_close(parameter.grad, known, rtol=1e-12, atol=1e-12)


def test_a_loss_that_nobody_summed_is_refused() -> None:
    network = Perceptron(nn.Linear(3, 4))
    with Tape() as tape:
        each = losses.huber(pick(network(torch.randn(5, 3)), torch.arange(5) % 4), torch.randn(5))
    with pytest.raises(RuntimeError, match="scalar"):
        tape.backward(each)
