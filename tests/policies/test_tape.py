"""Gradients by hand are autograd's: networks, and what the tape leaves to autograd."""

import copy
from threading import Thread

import pytest
import torch
from support.small_networks import TOLERANCE, network
from torch import Tensor, nn
from torch.testing import assert_close

from rlkit import ranks
from rlkit.errors import UserError
from rlkit.policies.normalize import Normalizer
from rlkit.policies.perceptron import FEW, Perceptron
from rlkit.tape import Tape, recording


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


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated, and still what many use
@pytest.mark.parametrize("without_gradient", [torch.no_grad, torch.inference_mode])
def test_a_network_that_is_exported_without_gradient_is_whole(without_gradient: type[torch.no_grad]) -> None:
    """Torch does not see what numpy computes: a traced network had no tanh in it."""
    net, x = network(nn.Tanh, 3, 8, 8, 2), torch.linspace(-2, 2, 15, dtype=torch.float64).view(5, 3)
    expected = by_autograd(net, x)[0]
    with without_gradient():
        for export in (
            torch.jit.trace,
            lambda *given: torch.export.export(*given).module(),
            lambda *_: torch.vmap(net),
        ):
            assert_close(export(net, (x,))(x), expected)


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
    many = FEW // 64**2 + 1
    assert net.on_arrays(many) is None  # rows that numpy would compute in several threads
    with ranks.playing(many, slice(0, many // 2)):
        assert net.on_arrays(many // 2) is None  # a rank draws in the order of one process
    with ranks.playing(4, slice(0, 2)):  # groups, of which this rank plays many attempts
        assert net.on_arrays(many // 2 + 1) is None


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


def test_a_loss_that_goes_backward_itself_is_refused() -> None:
    """What it takes for the gradient of the parameters would be none."""
    net, x = network(nn.Tanh, 3, 4, 2), torch.randn(5, 3, dtype=torch.float64)
    with Tape() as tape:
        loss = net(x).sum()
        net(x).square().sum().backward()
    with pytest.raises(UserError, match=r"loss calls backward\(\) itself .*: give policy\.fast=false, or call it in"):
        tape.backward(loss)
