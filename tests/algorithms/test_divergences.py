"""KL estimators against an enumerated distribution, and the gates that stand in for the clip."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlkit import divergences, losses


def policies() -> tuple[Tensor, Tensor, Tensor]:
    """Logits of the policy (a leaf), of the older one that acted, and of the reference, over 7 actions."""
    draw = torch.Generator().manual_seed(0)
    now, old, ref = torch.randn(3, 7, generator=draw, dtype=torch.float64)
    return now.requires_grad_(), old, ref


def divergence(now: Tensor, ref: Tensor) -> Tensor:
    p, q = now.log_softmax(-1), ref.log_softmax(-1)
    return (p.exp() * (p - q)).sum()


def test_the_estimators_by_hand() -> None:
    log_prob, ref = torch.tensor([math.log(0.5), math.log(0.2)]).double(), torch.tensor([math.log(0.25)] * 2).double()
    assert_close(losses.kl_k1(log_prob, ref), torch.tensor([math.log(2), math.log(0.8)]).double())
    assert_close(losses.kl_k2(log_prob, ref), torch.tensor([math.log(2) ** 2 / 2, math.log(0.8) ** 2 / 2]).double())
    old = torch.tensor([math.log(0.25), math.log(0.2)]).double()
    expected = torch.tensor([2 * (0.5 - 1 + math.log(2)), 1.25 - 1 + math.log(0.8)]).double()
    assert_close(losses.kl_unbiased(log_prob, ref, log_prob - old), expected)


@pytest.mark.parametrize("estimator", [losses.kl_k1, losses.kl_k3])
def test_k1_and_k3_have_the_divergence_as_their_mean(estimator) -> None:
    now, _, ref = policies()
    p, q = now.log_softmax(-1), ref.log_softmax(-1)
    assert_close((p.exp() * estimator(p, q)).sum(), divergence(now, ref))


def expected_gradient(each: Tensor, acted: Tensor, now: Tensor) -> Tensor:
    """Of a loss averaged over actions drawn from `acted`, whose draw itself is not differentiated."""
    return torch.autograd.grad((acted.detach() * each).sum(), now, retain_graph=True)[0]


def test_as_a_loss_k1_pulls_nowhere_k2_to_the_reference_and_k3_elsewhere() -> None:
    now, _, ref = policies()
    p, q = now.log_softmax(-1), ref.log_softmax(-1)
    right = torch.autograd.grad(divergence(now, ref), now)[0]
    assert_close(expected_gradient(losses.kl_k1(p, q), p.exp(), now), torch.zeros(7).double())
    assert_close(expected_gradient(losses.kl_k2(p, q), p.exp(), now), right)
    forward = torch.autograd.grad((q.exp() * (q - now.log_softmax(-1))).sum(), now)[0]  # that of KL(π_ref‖π)
    assert_close(expected_gradient(losses.kl_k3(p, q), p.exp(), now), forward)


def test_weighted_by_the_ratio_k3_is_unbiased_in_value_and_gradient_off_policy_too() -> None:
    now, old, ref = policies()
    p, b, q = now.log_softmax(-1), old.log_softmax(-1), ref.log_softmax(-1)
    each = losses.kl_unbiased(p, q, p - b)
    assert_close((b.exp() * each).sum(), divergence(now, ref))
    assert_close(expected_gradient(each, b.exp(), now), torch.autograd.grad(divergence(now, ref), now)[0])


@pytest.mark.parametrize(
    ("log_prob", "gap", "rounding"),
    [
        (-1.0, 2**-11, True),  # 4,096 units in the last place of float32, 2⁻²³ each
        (-1.0, -(2**-11), True),
        (-0.25, 0.0004, True),  # of a log-probability near 0 the unit is that of 1
        (-0.25, 0.0006, False),
        (-8.0, 0.003, True),
        (-8.0, 0.005, False),
        (-8.0, -0.005, False),
    ],
)
def test_a_log_ratio_counts_as_rounding_in_proportion_to_the_log_probability(
    log_prob: float, gap: float, rounding: bool
) -> None:
    now, mask = torch.tensor([[-2.0, log_prob, -9.0]]), torch.tensor([[True, True, False]])
    ref = now + torch.tensor([[1e-5, gap, 5.0]])
    assert torch.equal(divergences.beyond_rounding(now, ref, mask), now if rounding else ref)


def test_dual_clip_bounds_the_loss_of_a_bad_step_that_became_likelier() -> None:
    log_ratio = torch.tensor([5.0, 2.0, 5.0, 0.5]).log()
    advantage = torch.tensor([-1.0, -1.0, 1.0, -2.0])
    each = losses.clipped_surrogate(log_ratio, advantage, 0.2, 0.2)
    assert_close(each, torch.tensor([5.0, 2.0, -1.2, 1.6]))
    assert_close(losses.dual_clipped(each, advantage, 3.0), torch.tensor([3.0, 2.0, -1.2, 1.6]))
    assert_close(losses.dual_clipped(each, advantage, math.inf), each)


def test_the_clipped_weight_of_cispo_by_hand_and_its_gradient_never_vanishes() -> None:
    log_prob = torch.tensor([-1.0, -2.0, -0.5, -3.0], requires_grad=True)
    log_ratio = torch.tensor([3.0, 0.1, 1.0, 9.0]).log()
    advantage = torch.tensor([1.0, -1.0, 2.0, -1.0])
    each = losses.clipped_weight(log_ratio, log_prob, advantage, 1.0, 4.0)
    assert_close(each, torch.tensor([3.0, -0.2, 1.0, -15.0]))
    assert_close(torch.autograd.grad(each.sum(), log_prob)[0], torch.tensor([-3.0, 0.1, -2.0, 5.0]))


def test_the_soft_gate_of_sapo_has_the_policy_gradient_at_ratio_1_and_fades_away_from_it() -> None:
    log_prob = torch.tensor([0.0, 0.0, 3.0, 3.0]).double().requires_grad_()
    advantage = torch.tensor([2.0, -2.0, 2.0, -2.0]).double()
    each = losses.soft_gated(log_prob, advantage, 1.0, 1.05)
    grad = torch.autograd.grad(each.sum(), log_prob)[0]
    assert_close(each[:2], torch.tensor([-4.0, 4 / 1.05]).double())  # −A·(4/τ)·σ(0)
    assert_close(grad[:2], -advantage[:2])
    assert 0 < -float(grad[2]) < 1e-5 and 0 < float(grad[3]) < -float(grad[2])  # τ is larger where A < 0


def test_the_geometric_surrogate_clips_each_step_on_the_side_its_advantage_pushes_to() -> None:
    log_ratio = torch.tensor([[1.0, -1.0, 0.3], [1.0, -1.0, 0.3]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    advantage = torch.tensor([[1.0], [-2.0]]).expand(2, 3)
    each = losses.geometric_surrogate(log_ratio, advantage, mask, 0.4, 0.4)
    first, second = math.exp((0.4 - 1.0) / 2), math.exp((1.0 - 0.4 + 0.3) / 3)
    assert_close(each, torch.tensor([[-first] * 3, [2 * second] * 3]))
    grad = torch.autograd.grad(each[:, 0].sum(), log_ratio)[0]
    assert_close(grad, torch.tensor([[0.0, -first / 2, 0.0], [2 * second / 3, 0.0, 2 * second / 3]]))


def test_rows_are_averaged_and_summed_over_what_was_acted() -> None:
    x, mask = torch.tensor([[1.0, 2.0, 9.0], [5.0, 5.0, 5.0]]), torch.tensor([[True, True, False], [False] * 3])
    assert_close(losses.row_mean(x, mask), torch.tensor([[1.5] * 3, [0.0] * 3]))
    assert_close(losses.row_sum(x, mask), torch.tensor([[3.0] * 3, [0.0] * 3]))


@pytest.mark.parametrize("gap", [19.0, 21.0, 50.0, 200.0])
def test_k3_pulls_to_the_reference_from_however_far_away(gap: float) -> None:
    log_prob = torch.tensor(0.0, requires_grad=True)
    for each in (
        losses.kl_k3(log_prob, torch.tensor(gap)),
        losses.kl_unbiased(log_prob, torch.tensor(gap), log_prob * 0),
    ):
        slope = float(torch.autograd.grad(each, log_prob)[0])
        assert slope == pytest.approx(1 - math.exp(min(gap, 20.0)), rel=1e-5)
    far = torch.tensor(0.0, requires_grad=True)  # on the other side the slope tends to 1
    assert float(torch.autograd.grad(losses.kl_k3(far, torch.tensor(-gap)), far)[0]) == pytest.approx(1, rel=1e-5)


def test_huge_ratios_stay_finite() -> None:
    log_ratio = torch.tensor([200.0, -200.0], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0])
    for each in (
        losses.clipped_weight(log_ratio, log_ratio, advantage, 1.0, 4.0),
        losses.soft_gated(log_ratio, advantage, 1.0, 1.05),
        losses.kl_k3(log_ratio, torch.zeros(2)),
        losses.kl_unbiased(log_ratio, torch.zeros(2), log_ratio),
    ):
        assert bool(each.isfinite().all()) and bool(torch.autograd.grad(each.sum(), log_ratio)[0].isfinite().all())
