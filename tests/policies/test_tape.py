"""Gradients by hand are autograd's: for networks, distributions, and each algorithm that learns by a network."""

import copy
import itertools
import math
from threading import Thread

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from rlkit import losses
from rlkit.policies.distributions import categorical, gaussian, pick
from rlkit.policies.normalize import Normalizer
from rlkit.policies.perceptron import FEW, Perceptron
from rlkit.tape import Tape, joined, recording, squeezed, tanh

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}


def network(activation: type[nn.Module], *sizes: int, dtype: torch.dtype = torch.float64) -> Perceptron:
    torch.manual_seed(sum(sizes))
    layers: list[nn.Module] = []
    for n, m in itertools.pairwise(sizes):
        layers += [nn.Linear(n, m, dtype=dtype), activation()]
    return Perceptron(*layers[:-1])


def by_autograd(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    out = x
    for layer in net:
        out = layer(out)
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return out.detach(), list(torch.autograd.grad((out * weights).sum() + out.square().sum(), list(net.parameters())))


def by_hand(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    for p in net.parameters():
        p.grad = None
    with Tape() as tape:
        out = net(x)
        assert out.is_leaf and out.requires_grad
        weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
        loss = (out * weights).sum() + out.square().sum()
    tape.backward(loss)
    return out.detach(), [p.grad for p in net.parameters()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("sizes", [(4, 8, 3), (3, 64, 64, 1), (7, 2), (2, 7), (1, 5, 2, 9, 2)])
@pytest.mark.parametrize("shape", [(6,), (2, 5), (1,), (2, 3, 4)])
def test_a_network_by_hand_is_that_of_autograd(shape, sizes, activation, dtype) -> None:
    net, x = network(activation, *sizes, dtype=dtype), torch.randn(*shape, sizes[0], dtype=dtype)
    for ours, theirs in zip(*(by(net, x) for by in (by_hand, by_autograd)), strict=True):
        assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 10)


def test_a_gradient_worked_out_on_paper() -> None:
    net = network(nn.ReLU, 1, 2, 1)
    for p, x in zip(net.parameters(), ([[1.0], [-1.0]], [0.0, 0.0], [[2.0, 3.0]], [1.0]), strict=True):
        p.data = torch.tensor(x, dtype=torch.float64)
    with Tape() as tape:
        out = net(torch.tensor([[0.5]], dtype=torch.float64))  # hidden (0.5, 0), so 2 · 0.5 + 1
    assert out.item() == 2.0
    tape.backward((3 * out).sum())
    assert [p.grad.flatten().tolist() for p in net.parameters()] == [[3.0, 0.0], [6.0, 0.0], [1.5, 0.0], [3.0]]


def test_gradients_add_up_and_frozen_parameters_get_none() -> None:
    net, x = network(nn.Tanh, 3, 4, 2), torch.randn(5, 3, dtype=torch.float64)
    first = [g.clone() for g in by_hand(net, x)[1]]
    net[0].weight.requires_grad_(False)
    for _ in range(2):
        with Tape() as tape:
            out = net(x)
        tape.backward((out * torch.linspace(-1, 2, 10, dtype=out.dtype).view_as(out) + out.square()).sum())
    assert_close(net[2].weight.grad, 3 * first[2])
    assert_close(net[0].bias.grad, 3 * first[1])
    assert_close(net[0].weight.grad, first[0])


def test_without_a_tape_autograd_goes_through_the_layers() -> None:
    net, x = network(nn.Tanh, 3, 4, 2), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(net, x)
    with Tape():
        assert not net(x).is_leaf  # a gradient of the input is asked for
        with torch.no_grad():
            assert recording() is None and not net(x).requires_grad
    assert recording() is None


def weight_norm_later(net: nn.Sequential) -> None:
    net(torch.randn(5, 3, dtype=torch.float64))  # found plain before
    nn.utils.parametrizations.weight_norm(net[0])


ODD = {
    "mixed activations": lambda net: net.__setitem__(1, nn.ReLU()),
    "no bias": lambda net: net.__setitem__(2, nn.Linear(4, 4, bias=False, dtype=torch.float64)),
    "another layer": lambda net: net.__setitem__(3, nn.LayerNorm(4, dtype=torch.float64)),
    "fast=False": lambda net: setattr(net, "fast", False),
    "weight norm": weight_norm_later,
    "spectral norm": lambda net: nn.utils.spectral_norm(net[0]).eval(),
    "hook of a layer": lambda net: net[2].register_forward_hook(lambda *_: None),
    "hook of an activation": lambda net: net[1].register_forward_hook(lambda _, __, out: 2 * out),
    "backward hook of an activation": lambda net: net[1].register_full_backward_hook(lambda *_: None),
    "hook of a weight": lambda net: net[2].weight.register_hook(lambda gradient: 2 * gradient),
    "hook of a bias": lambda net: net[0].bias.register_hook(lambda gradient: 2 * gradient),
    "hook behind a gradient": lambda net: net[0].bias.register_post_accumulate_grad_hook(lambda _: None),
    "forward of its own": lambda net: setattr(net[1], "forward", torch.sin),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_plain_is_left_to_autograd(odd: str) -> None:
    net = network(nn.Tanh, 3, 4, 4, 2)
    ODD[odd](net)
    x = torch.randn(5, 3, dtype=torch.float64)
    expected = x
    for layer in net:
        expected = layer(expected)
    with Tape() as tape:
        out = net(x)
    assert not out.is_leaf and tape.notes == []
    assert torch.equal(out, expected)
    assert net.on_arrays(5) is None


@pytest.mark.parametrize("entropy", [0.0, 0.7])
def test_a_categorical_by_hand_is_that_of_autograd(entropy: float) -> None:
    logits, action = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 1, 0])
    found = []
    for on_tape in (True, False):
        z = logits.clone().requires_grad_()
        tape = Tape()
        if on_tape:
            with tape:
                log_prob, spread = categorical(z, action)
        else:
            log_prob, spread = categorical(z, action)
        loss = (log_prob * torch.arange(6)).sum()
        tape.backward(loss + entropy * spread.square().sum() if entropy else loss)
        found.append((log_prob.detach(), spread.detach(), z.grad))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    p = logits.softmax(-1)
    assert_close(found[0][1], torch.distributions.Categorical(p).entropy())


def test_a_uniform_categorical_has_the_largest_entropy_and_no_gradient_of_it() -> None:
    z = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    with Tape() as tape:
        log_prob, spread = categorical(z, torch.tensor([2]))
    assert_close(spread.item(), math.log(4))
    tape.backward(spread.sum())
    assert_close(z.grad, torch.zeros(1, 4, dtype=torch.float64))
    assert log_prob.item() == pytest.approx(-math.log(4))


@pytest.mark.parametrize("entropy", [0.0, 0.7])
@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_a_gaussian_by_hand_is_that_of_autograd(shape: tuple[int, ...], entropy: float) -> None:
    mean, action = torch.randn(*shape, 3, dtype=torch.float64), torch.randn(*shape, 3, dtype=torch.float64)
    found = []
    for on_tape in (True, False):
        m, log_std = mean.clone().requires_grad_(), torch.tensor([-1.0, 0.0, 0.5]).double().requires_grad_()
        tape = Tape()
        if on_tape:
            with tape:
                log_prob, spread = gaussian(m, log_std, action)
        else:
            log_prob, spread = gaussian(m, log_std, action)
        loss = (log_prob * torch.arange(log_prob.numel()).view(shape)).sum()
        tape.backward(loss + entropy * spread.square().sum() if entropy else loss)
        found.append((log_prob.detach(), spread.detach(), m.grad, log_std.grad))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    normal = torch.distributions.Normal(mean, torch.tensor([-1.0, 0.0, 0.5]).double().exp())
    assert_close(found[0][0], normal.log_prob(action).sum(-1))
    assert_close(found[0][1], normal.entropy().sum(-1))


def test_a_gaussian_of_what_autograd_computed_is_left_to_it() -> None:
    log_std = torch.zeros(2, requires_grad=True)
    for scale, action in ((log_std.clamp(-5, 2), torch.ones(4, 2)), (log_std, torch.ones(4, 2, requires_grad=True))):
        log_std.grad = None
        mean = torch.zeros(4, 2, requires_grad=True)
        with Tape() as tape:
            log_prob, _ = gaussian(mean, scale, action)
        tape.backward(log_prob.sum())
        assert tape.notes == [] and log_std.grad is not None and mean.grad is not None
    assert action.grad is not None


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
    other = torch.randn(5, dtype=torch.float64, requires_grad=True)
    with Tape() as tape:
        loss = losses.weighted(losses.plus(squeezed(net(x)), other, 2.0), torch.ones(5, dtype=torch.float64))
    tape.backward(loss)
    assert_close(other.grad, torch.full((5,), 2.0, dtype=torch.float64))
    gradients = torch.autograd.grad(nn.Sequential(*net)(x).sum(), list(net.parameters()))
    assert_close([p.grad for p in net.parameters()], list(gradients), rtol=1e-12, atol=1e-12)


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


def test_each_thread_has_its_own_tape() -> None:
    seen: list[Tape | None] = []
    with Tape() as outer:
        thread = Thread(target=lambda: seen.append(recording()))
        thread.start()
        thread.join()
        with Tape() as inner:
            assert recording() is inner
        assert recording() is outer
    assert seen == [None]


def test_arrays_give_what_tensors_give() -> None:
    for activation in (nn.Tanh, nn.ReLU):
        net, x = network(activation, 4, 64, 64, 2, dtype=torch.float32), torch.randn(8, 4)
        before = x.clone()
        out = net.on_arrays(8)(x.numpy())
        with torch.no_grad():
            assert_close(torch.from_numpy(out), net(x), rtol=1e-5, atol=1e-6)
        assert torch.equal(x, before)
    assert net.on_arrays(FEW // 64**2 + 1) is None  # rows that numpy would compute in several threads


def test_arrays_are_normalized_as_tensors_are() -> None:
    normalizer = Normalizer(4)
    normalizer.observe(torch.randn(50, 4) * 3 + 1, torch.ones(50, dtype=torch.bool))
    normalizer.refresh()
    net, x = Perceptron(normalizer, nn.Linear(4, 3)), torch.randn(6, 4) * 40
    with torch.no_grad():
        assert_close(torch.from_numpy(net.on_arrays(6)(x.numpy())), net(x), rtol=1e-5, atol=1e-5)


def test_a_copy_of_a_network_that_was_used_looks_at_its_own_layers() -> None:
    net = Perceptron(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.ones(5, 3)
    with torch.no_grad():
        before = net(x)
        other = copy.deepcopy(net)
        other[2].forward = lambda y: torch.zeros(5, 2)  # type: ignore[method-assign, assignment]
        assert torch.equal(other(x), torch.zeros(5, 2))
        assert torch.equal(net(x), before)
