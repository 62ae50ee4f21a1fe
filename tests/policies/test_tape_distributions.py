"""Log-probabilities and entropies on the tape: their gradients are autograd's."""

import math

import pytest
import torch
from torch.testing import assert_close

from rlkit.policies.distributions import categorical, gaussian
from rlkit.tape import Tape


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
