"""Losses on the tape: their gradients are autograd's, in the precision of the network."""

import math

import pytest
import torch
from support.small_networks import TOLERANCE, network
from torch import nn
from torch.testing import assert_close

from rlkit import losses
from rlkit.policies.distributions import pick
from rlkit.policies.perceptron import Perceptron
from rlkit.tape import Tape, joined, squeezed, tanh


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


@pytest.mark.parametrize("each", [losses.huber, losses.squared_error])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_loss_of_what_was_picked_by_hand_is_that_of_autograd(each, dtype) -> None:
    net, x = network(nn.ReLU, 3, 8, 4, dtype=dtype), torch.randn(6, 3, dtype=dtype)
    action, target, weight = (
        torch.tensor([0, 1, 3, 3, 2, 0]),
        3 * torch.randn(6, dtype=dtype),
        torch.rand(6, dtype=dtype),
    )
    expected = losses.weighted(each(pick(nn.Sequential(*net)(x), action), target), weight)
    gradients = torch.autograd.grad(expected, list(net.parameters()))
    with Tape() as tape:
        loss = losses.weighted(each(pick(net(x), action), target), weight)
    assert loss.is_leaf and len(tape.notes) == 4, "all of it is on the tape"
    tape.backward(loss)
    assert_close(loss, expected)
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        assert_close(p.grad, gradient, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# log π_θ with −log π_b = 0: equal, within the bounds, on and beyond them, and beyond what exp is asked for
RATIOS = [0.0, 0.1, -0.1, math.log(1.2), math.log(0.8), 0.5, -0.5, 25.0, -25.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [0.0, -0.3])
@pytest.mark.parametrize("surrogate", ["clipped", "plain"])
def test_a_loss_of_several_terms_by_hand_is_that_of_autograd(surrogate: str, scale: float, dtype) -> None:
    """As in ppo and a2c, for each sign of the advantage."""
    inputs = [torch.tensor(RATIOS, dtype=dtype).repeat(3), *torch.randn(2, 27, dtype=dtype)]
    advantage, old = torch.tensor([1.5, -0.5, 0.0], dtype=dtype).repeat_interleave(9), torch.zeros(27, dtype=dtype)
    target, weight = torch.randn(27, dtype=dtype), torch.rand(27, dtype=dtype)
    found = []
    for by_hand in (True, False):
        leaves = [x.clone().requires_grad_() for x in inputs]
        with Tape() as tape:
            results = [x.detach().clone() for x in inputs] if by_hand else leaves
            for x, result in zip(leaves, results, strict=True) if by_hand else ():
                tape.note((result,), lambda g, x=x: setattr(x, "grad", g))
            log_prob, value, entropy = results
            if surrogate == "clipped":
                each = losses.clipped_surrogate(losses.log_ratio(log_prob, old), advantage, 0.2, 0.2)
            else:
                each = losses.policy_gradient(log_prob, advantage)
            each = losses.plus(losses.plus(each, losses.squared_error(value, target), 0.5), entropy, scale)
            loss = losses.weighted(each, weight)
        assert loss.is_leaf == by_hand
        tape.backward(loss)
        found.append((loss.detach(), *(x.grad for x in leaves)))
    assert (found[0][-1] is None) == (scale == 0) and found[0][1].abs().sum() > 0
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("each", [losses.policy_gradient, losses.log_ratio, losses.squared_error])
def test_what_is_given_in_another_precision_is_left_in_that_of_the_network(each) -> None:
    """Such as advantages that one's own algorithm computes in float64."""
    net, x = network(nn.Tanh, 3, 4, 1, dtype=torch.float32), torch.randn(5, 3)
    given, weight = torch.randn(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    with Tape() as tape:
        loss = losses.weighted(each(squeezed(net(x)), given), weight)
    tape.backward(loss)
    expected = losses.weighted(each(nn.Sequential(*net)(x).squeeze(-1), given), weight)
    gradients = torch.autograd.grad(expected, list(net.parameters()))
    assert_close([p.grad for p in net.parameters()], list(gradients), rtol=1e-5, atol=1e-6)


def test_a_term_that_is_added_to_itself_counts_twice() -> None:
    net, x = network(nn.Tanh, 3, 4, 1), torch.randn(5, 3, dtype=torch.float64)
    with Tape() as tape:
        value = squeezed(net(x))
        loss = losses.weighted(losses.plus(value, value, 2.0), torch.ones(5, dtype=torch.float64))
    tape.backward(loss)
    gradients = torch.autograd.grad(3 * nn.Sequential(*net)(x).sum(), list(net.parameters()))
    assert_close([p.grad for p in net.parameters()], list(gradients), rtol=1e-12, atol=1e-12)


def test_a_term_that_is_not_on_the_tape_is_left_to_autograd() -> None:
    net, x = network(nn.Tanh, 3, 4, 1), torch.randn(5, 3, dtype=torch.float64)
    leaf = torch.randn(5, dtype=torch.float64, requires_grad=True)
    with Tape() as tape:
        loss = losses.weighted(losses.plus(squeezed(net(x)), 3 * leaf, 2.0), torch.ones(5, dtype=torch.float64))
    tape.backward(loss)
    assert_close(leaf.grad, torch.full((5,), 6.0, dtype=torch.float64))
    gradients = torch.autograd.grad(nn.Sequential(*net)(x).sum(), list(net.parameters()))
    assert_close([p.grad for p in net.parameters()], list(gradients), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("number", [0.5, 0.0])
def test_a_scale_that_is_learned_has_its_gradient(number: float) -> None:
    net, x = network(nn.Tanh, 3, 4, 1), torch.randn(5, 3, dtype=torch.float64)
    scale = nn.Parameter(torch.tensor(number, dtype=torch.float64))
    with Tape() as tape:
        value = squeezed(net(x))
        loss = losses.weighted(losses.plus(value, losses.squared_error(value, x[:, 0]), scale), x[:, 1])
    tape.backward(loss)
    plain = nn.Sequential(*net)(x).squeeze(-1)
    wanted = ((plain + scale * 0.5 * (plain - x[:, 0]).square()) * x[:, 1]).sum()
    gradients = torch.autograd.grad(wanted, [*net.parameters(), scale])
    assert_close([p.grad for p in (*net.parameters(), scale)], list(gradients), rtol=1e-12, atol=1e-12)


def test_a_loss_whose_target_learns_is_left_to_autograd() -> None:
    net, x = network(nn.ReLU, 3, 8, 1), torch.randn(6, 3, dtype=torch.float64)
    target = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    with Tape() as tape:
        value = pick(net(x), torch.zeros(6, dtype=torch.long))
        loss = losses.weighted(losses.huber(value, target), torch.ones(6, dtype=torch.float64))
    tape.backward(loss)
    assert not loss.is_leaf and target.grad is not None and net[0].weight.grad is not None


@pytest.mark.parametrize("frozen", [True, False])
def test_an_actor_through_a_critic_by_hand_is_that_of_autograd(frozen: bool) -> None:
    """Q(s, tanh μ(s)), as a deterministic actor is moved."""
    actor, critic = network(nn.ReLU, 3, 8, 2), network(nn.ReLU, 5, 16, 1)
    for p in critic.parameters():
        p.requires_grad_(not frozen)
    learning = [*actor.parameters(), *([] if frozen else critic.parameters())]
    x = torch.randn(6, 3, dtype=torch.float64)
    expected = nn.Sequential(*critic)(torch.cat([x, nn.Sequential(*actor)(x).tanh()], -1))
    gradients = torch.autograd.grad(expected.sum(), learning)
    with Tape() as tape:
        q = critic(joined(x, tanh(actor(x))))
    assert q.is_leaf, "all of it is on the tape"
    tape.backward(q.sum())
    assert_close(q, expected)
    assert_close([p.grad for p in learning], list(gradients), rtol=1e-12, atol=1e-12)
