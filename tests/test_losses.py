"""Per-element losses and reductions: hand-worked numbers, limits, and the formulas of others, values and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from rlkit import losses

INF = math.inf


def normal(*shape: int, seed: int = 0, grad: bool = True) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=grad)


def same(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    """Equal values, and equal gradients of a sum with uneven weights."""
    assert_close(ours, theirs)
    weight = torch.linspace(-1, 2, ours.numel(), dtype=ours.dtype).view_as(ours)
    first, second = (torch.autograd.grad((x * weight).sum(), inputs, retain_graph=True) for x in (ours, theirs))
    assert_close(first, second)


def slope(each: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(each.sum(), x)[0]


# Reductions

MASK = torch.tensor([[True, True, True], [False, True, False], [False, False, False]])


def test_token_sequence_and_row_weights_by_hand() -> None:
    assert_close(losses.reduction(MASK, "token"), MASK / 4)
    sequence = torch.tensor([[1 / 6, 1 / 6, 1 / 6], [0, 1 / 2, 0], [0, 0, 0]])  # two rows that acted
    assert_close(losses.reduction(MASK, "sequence"), sequence)
    assert_close(losses.reduction(MASK, "row"), torch.tensor([0.5, 0.5, 0.0]))
    assert_close(losses.reduction(MASK, "constant", 5), MASK / 15)  # B · length, whatever the mask


@pytest.mark.parametrize("over", ["token", "sequence", "row"])
def test_weights_sum_to_1_and_are_0_where_nobody_acted(over: losses.Over) -> None:
    mask = torch.rand(9, 17, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[3] = False
    weight = losses.reduction(mask, over)
    assert_close(weight.sum(), torch.tensor(1.0))
    assert not weight[~(mask if weight.dim() == 2 else mask.any(1))].any()


def test_constant_weights_sum_to_1_when_every_row_uses_its_budget() -> None:
    assert_close(losses.reduction(torch.ones(4, 6, dtype=torch.bool), "constant", 6).sum(), torch.tensor(1.0))


def test_steps_without_rows_are_averaged_and_pairs_are_rows() -> None:
    assert_close(losses.reduction(torch.tensor([True, False, True]), "token"), torch.tensor([0.5, 0.0, 0.5]))
    pairs = torch.ones(3, 2, 4, dtype=torch.bool)
    pairs[1] = False
    assert_close(losses.reduction(pairs, "row"), torch.tensor([0.5, 0.0, 0.5]))


@pytest.mark.parametrize("over", ["token", "sequence", "constant"])
def test_attempts_in_groups_weigh_as_the_rows_that_they_are(over: losses.Over) -> None:
    mask = torch.arange(5) < torch.tensor([[3, 5, 0], [1, 2, 4]])[..., None]
    flat = losses.reduction(mask.flatten(0, 1), over, 5)
    assert_close(losses.reduction(mask, over, 5).flatten(0, 1), flat)


@pytest.mark.parametrize("over", ["token", "sequence", "constant", "row"])
def test_a_mask_without_a_step_gives_zero_weights_and_no_nan(over: losses.Over) -> None:
    weight = losses.reduction(torch.zeros(3, 4, dtype=torch.bool), over, 4)
    assert_close(weight, torch.zeros_like(weight), rtol=0, atol=0)


def test_a_reduction_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="over='mean' is not a reduction: give token, sequence, constant or row"):
        losses.reduction(torch.ones(2, 3, dtype=torch.bool), "mean")  # type: ignore[arg-type]


def test_reductions_equal_the_formulas_of_trl_and_verl_in_value_and_gradient() -> None:
    each, mask = normal(5, 7), normal(5, 7, seed=1, grad=False) > -0.3
    assert bool(mask.any(1).all())
    length = torch.tensor(7)
    m = mask.double()
    theirs = {
        "sequence": ((each * m).sum(-1) / m.sum(-1).clamp(min=1)).mean(),  # TRL grpo, verl seq-mean-token-mean
        "token": (each * m).sum() / m.sum().clamp(min=1),  # TRL bnpo and dapo, verl token-mean
        "constant": (each * m).sum() / (5 * length),  # TRL dr_grpo, verl seq-mean-token-sum-norm
    }
    for over, expected in theirs.items():
        same((each * losses.reduction(mask, over, 7)).sum(), expected, each)  # type: ignore[arg-type]


# Policy losses


def test_policy_gradient_by_hand_and_its_gradient_is_minus_the_advantage() -> None:
    log_prob, advantage = torch.tensor([-0.5, -2.0], requires_grad=True), torch.tensor([2.0, -1.0])
    each = losses.policy_gradient(log_prob, advantage)
    assert_close(each, torch.tensor([1.0, -2.0]))
    assert_close(slope(each, log_prob), -advantage)


def test_policy_gradient_of_a_softmax_is_cross_entropy_weighted_by_the_advantage() -> None:
    logits, advantage = normal(6, 4), normal(6, seed=1, grad=False)
    action = torch.tensor([0, 1, 2, 3, 0, 1])
    log_prob = logits.log_softmax(-1)[torch.arange(6), action]
    same(
        losses.policy_gradient(log_prob, advantage),
        advantage * F.cross_entropy(logits, action, reduction="none"),
        logits,
    )


def test_clipped_surrogate_by_hand_in_all_six_cases() -> None:
    ratio = torch.tensor([1.5, 1.0, 0.5, 1.5, 1.0, 0.5])
    advantage = torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    log_ratio = ratio.log().requires_grad_()
    each = losses.clipped_surrogate(log_ratio, advantage, 0.2, 0.3)
    assert_close(each, torch.tensor([-2.6, -2.0, -1.0, 3.0, 2.0, 1.6]))
    # −ρ·A where the ratio may still move, 0 where it left the interval on the side that its advantage pushes to
    assert_close(slope(each, log_ratio), torch.tensor([0.0, -2.0, -1.0, 3.0, 2.0, 0.0]))
    assert losses.clipped(log_ratio, advantage, 0.2, 0.3).tolist() == [True, False, False, False, False, True]


def test_clipped_says_exactly_where_the_gradient_is_zero() -> None:
    log_ratio, advantage = normal(200), normal(200, seed=1, grad=False)
    gradient = slope(losses.clipped_surrogate(log_ratio, advantage, 0.1, 0.4), log_ratio)
    assert torch.equal(losses.clipped(log_ratio, advantage, 0.1, 0.4), gradient == 0)


def test_cleanrls_clipfrac_also_counts_steps_that_still_have_a_gradient() -> None:
    draw = torch.Generator().manual_seed(0)
    log_ratio, advantage = 0.3 * torch.randn(10_000, generator=draw), torch.randn(10_000, generator=draw)
    theirs = float(((log_ratio.exp() - 1).abs() > 0.2).float().mean())  # cleanrl/ppo.py
    ours = float(losses.clipped(log_ratio, advantage, 0.2, 0.2).float().mean())
    assert ours == pytest.approx(theirs / 2, rel=0.05), "as docs/coming_from/cleanrl.md says"


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.2, 0.28), (0.5, 0.1)])
def test_clipped_surrogate_equals_the_formulas_of_trl_and_verl_in_value_and_gradient(low: float, high: float) -> None:
    now, old, advantage = normal(64), normal(64, seed=1, grad=False), normal(64, seed=2, grad=False)
    ours = losses.clipped_surrogate(now - old, advantage, low, high)
    ratio = torch.exp(now - old)
    clipped = torch.clamp(ratio, 1 - low, 1 + high)
    same(ours, -torch.min(ratio * advantage, clipped * advantage), now)  # TRL
    same(ours, torch.max(-advantage * ratio, -advantage * clipped), now)  # verl, vanilla


def test_without_clipping_the_surrogate_is_importance_sampling() -> None:
    log_ratio, advantage = normal(64), normal(64, seed=1, grad=False)
    same(losses.clipped_surrogate(log_ratio, advantage, INF, INF), -log_ratio.exp() * advantage, log_ratio)


def test_at_ratio_1_the_surrogate_is_worth_minus_a_and_has_the_score_function_gradient() -> None:
    log_prob, advantage = normal(20), normal(20, seed=1, grad=False)
    each = losses.clipped_surrogate(log_prob - log_prob.detach(), advantage, 0.2, 0.2)
    assert_close(each, -advantage)
    assert_close(slope(each, log_prob), slope(losses.policy_gradient(log_prob, advantage), log_prob))


def test_one_sequence_ratio_for_all_tokens_goes_through_the_same_function() -> None:
    now, old = normal(3, 5), normal(3, 5, seed=1, grad=False)
    advantage = normal(3, 1, seed=2, grad=False)
    gap = (now - old).mean(-1, keepdim=True)  # GSPO, arXiv:2507.18071
    ours = losses.clipped_surrogate(gap, advantage, 0.2, 0.2)
    ratio = gap.exp()
    same(ours, -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage), now)


# Divergences


def test_kl_k3_by_hand() -> None:
    p, q = torch.tensor([0.5, 0.25, 0.5]), torch.tensor([0.25, 0.5, 0.5])
    expected = torch.tensor([0.5 + math.log(2) - 1, 2 - math.log(2) - 1, 0.0])
    assert_close(losses.kl_k3(p.log(), q.log()), expected)


def test_kl_k3_equals_trl_and_its_gradient_is_one_minus_the_ratio() -> None:
    now, ref = normal(50), normal(50, seed=1, grad=False)
    each = losses.kl_k3(now, ref)
    same(each, torch.exp(ref - now) - (ref - now) - 1, now)
    assert_close(slope(losses.kl_k3(now, ref), now), 1 - torch.exp(ref - now).detach())
    assert bool((each >= 0).all())


def test_the_mean_of_kl_k3_under_the_policy_is_the_divergence() -> None:
    p, q = normal(7, grad=False).log_softmax(-1), normal(7, seed=1, grad=False).log_softmax(-1)
    expected = F.kl_div(q, p, reduction="sum", log_target=True)  # KL(p‖q)
    assert_close((p.exp() * losses.kl_k3(p, q)).sum(), expected)


# Values


def test_squared_error_is_half_the_square_and_equals_torch_in_value_and_gradient() -> None:
    assert_close(losses.squared_error(torch.tensor(5.0), torch.tensor(2.0)), torch.tensor(4.5))
    value, target = normal(30), normal(30, seed=1)
    same(losses.squared_error(value, target), F.mse_loss(value, target, reduction="none") / 2, value, target)


def test_huber_by_hand_and_equal_to_torch_in_value_and_gradient() -> None:
    value = torch.tensor([0.5, 3.0, -2.0], requires_grad=True)
    each = losses.huber(value, torch.zeros(3))
    assert_close(each, torch.tensor([0.125, 2.5, 1.5]))
    assert_close(slope(each, value), torch.tensor([0.5, 1.0, -1.0]))  # DQN clips the error to ±1
    value, target = normal(30), 3 * normal(30, seed=1).detach()
    same(losses.huber(value, target), F.smooth_l1_loss(value, target, reduction="none"), value)


def test_clipped_value_by_hand() -> None:
    value = torch.tensor([2.0, 2.0, 0.6], requires_grad=True)
    each = losses.clipped_value(value, torch.zeros(3), torch.tensor([3.0, 1.0, 3.0]), 0.5)
    # max(½(2−3)², ½(½−3)²), max(½(2−1)², ½(½−1)²), max(½(.6−3)², ½(½−3)²)
    assert_close(each, torch.tensor([3.125, 0.5, 3.125]))
    assert_close(slope(each, value), torch.tensor([0.0, 1.0, 0.0]))  # no further than c a rollout


def test_clipped_value_equals_verl_and_with_an_infinite_clip_the_squared_error() -> None:
    value, old, target = normal(50), normal(50, seed=1, grad=False), normal(50, seed=2, grad=False)
    near = torch.clamp(value, old - 0.3, old + 0.3)
    verl = 0.5 * torch.max((value - target) ** 2, (near - target) ** 2)
    same(losses.clipped_value(value, old, target, 0.3), verl, value)
    same(losses.clipped_value(value, old, target, INF), losses.squared_error(value, target), value)


# Preferences


def test_dpo_of_equal_policies_is_log_2() -> None:
    chosen, rejected = normal(6, grad=False), normal(6, seed=1, grad=False)
    each = losses.dpo(chosen, rejected, chosen, rejected, 0.1)
    assert_close(each, torch.full((6,), math.log(2), dtype=torch.float64))


def test_dpo_by_hand_depends_on_the_margin_only_and_beta_0_on_nothing() -> None:
    each = losses.dpo(*(torch.tensor(x) for x in (-1.0, -4.0, -2.0, -3.0)), beta=0.5)  # Δ = 1 − (−1) = 2
    assert_close(each, torch.tensor(math.log(1 + math.exp(-1.0))))
    inputs = [normal(6, seed=i) for i in range(4)]
    assert_close(losses.dpo(*inputs, beta=0.0), torch.full((6,), math.log(2), dtype=torch.float64))
    assert_close(slope(losses.dpo(*inputs, beta=0.0), inputs[0]), torch.zeros(6, dtype=torch.float64))


def test_the_gradient_of_dpo_is_beta_times_sigmoid_of_the_negative_margin() -> None:
    chosen, rejected, ref_chosen, ref_rejected = (5 * normal(20, seed=i).detach() for i in range(4))
    chosen.requires_grad_(), rejected.requires_grad_()
    each, beta = losses.dpo(chosen, rejected, ref_chosen, ref_rejected, 0.3), 0.3
    with torch.no_grad():
        coefficient = beta * torch.sigmoid(-beta * ((chosen - ref_chosen) - (rejected - ref_rejected)))
    pull, push = torch.autograd.grad(each.sum(), [chosen, rejected])
    assert_close(pull, -coefficient)
    assert_close(push, coefficient)


def test_dpo_equals_binary_cross_entropy_and_stays_finite_for_huge_margins() -> None:
    inputs = [normal(20, seed=i) for i in range(4)]
    margin = 0.1 * ((inputs[0] - inputs[2]) - (inputs[1] - inputs[3]))
    theirs = F.binary_cross_entropy_with_logits(margin, torch.ones_like(margin), reduction="none")
    same(losses.dpo(*inputs, beta=0.1), theirs, *inputs)
    lost = torch.tensor([-1e4], requires_grad=True)
    each = losses.dpo(lost, torch.zeros(1), torch.zeros(1), torch.zeros(1), 1.0)
    assert_close(each, torch.tensor([1e4]))
    assert_close(slope(each, lost), torch.tensor([-1.0]))


# What is masked


@pytest.mark.parametrize("over", ["token", "sequence", "constant"])
def test_a_fully_masked_row_gives_no_nan_and_no_gradient(over: losses.Over) -> None:
    mask = torch.tensor([[True, True], [False, False]])
    log_prob, value = normal(2, 2), normal(2, 2, seed=1)
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    now = log_prob.masked_fill(~mask, 0.0)
    each = losses.clipped_surrogate(now, zeros + 1, 0.2, 0.2) + losses.kl_k3(now, zeros)
    each = each + losses.clipped_value(value, zeros, zeros + 2, 0.2)
    total = (each * losses.reduction(mask, over, 2)).sum()
    gradient = torch.autograd.grad(total, [log_prob, value])
    assert bool(total.isfinite()) and all(bool(g.isfinite().all()) for g in gradient)
    assert all(not g[1].any() for g in gradient)
