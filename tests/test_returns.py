"""Returns and advantages: hand-worked numbers, limits, torchrl and plain loops as oracles, values and gradients."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rlkit import returns


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows)


def episodes(rows: int = 5, time: int = 13, seed: int = 0) -> dict[str, Tensor]:
    """Random rewards and values with episodes that end anywhere, some terminated and some truncated."""
    draw = torch.Generator().manual_seed(seed)
    reward, value, next_value = torch.randn(3, rows, time, generator=draw, dtype=torch.float64)
    done = torch.rand(rows, time, generator=draw) < 0.3
    terminated = done & (torch.rand(rows, time, generator=draw) < 0.5)
    return {"reward": reward, "value": value, "next_value": next_value, "terminated": terminated, "done": done}


def looped_gae(batch: dict[str, Tensor], gamma: float, lam: float) -> Tensor:
    """The recursion of arXiv:1506.02438, one number at a time."""
    rows, time = batch["reward"].shape
    advantage: list[list[Tensor]] = [[torch.zeros(())] * time for _ in range(rows)]
    for b in range(rows):
        after = torch.zeros((), dtype=torch.float64)
        for t in reversed(range(time)):
            bootstrap = 0.0 if batch["terminated"][b, t] else batch["next_value"][b, t]
            delta = batch["reward"][b, t] + gamma * bootstrap - batch["value"][b, t]
            after = delta if batch["done"][b, t] else delta + gamma * lam * after
            advantage[b][t] = after
    return torch.stack([torch.stack(row) for row in advantage])


def gradients(out: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Of a sum with uneven weights, so that no two elements can trade places."""
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True)


# The scan


@pytest.mark.parametrize("time", [1, 2, 3, 7, 8, 9, 64])
def test_backward_scan_solves_its_recursion_for_every_length_in_value_and_gradient(time: int) -> None:
    draw = torch.Generator().manual_seed(time)
    delta, decay = torch.randn(2, 3, time, generator=draw, dtype=torch.float64)
    delta.requires_grad_(), decay.requires_grad_()
    after, columns = torch.zeros(3, dtype=torch.float64), []
    for t in reversed(range(time)):
        after = delta[:, t] + decay[:, t] * after
        columns.insert(0, after)
    loop, scan = torch.stack(columns, -1), returns.backward_scan(delta, decay)
    assert_close(scan, loop)
    if time > 1:
        assert_close(gradients(scan, [delta, decay]), gradients(loop, [delta, decay]))


def test_backward_scan_treats_every_leading_dimension_alike() -> None:
    delta, decay = torch.randn(2, 2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flat = returns.backward_scan(delta.flatten(0, 1), decay.flatten(0, 1))
    assert_close(returns.backward_scan(delta, decay), flat.view(2, 3, 5), rtol=0, atol=0)


# Returns


def test_reward_to_go_of_three_steps_by_hand() -> None:
    done = torch.tensor([[False, False, True]])
    # 1 + 0.5·(2 + 0.5·4) = 3, 2 + 0.5·4 = 4, 4
    assert_close(returns.reward_to_go(table([1.0, 2.0, 4.0]), done, 0.5), table([3.0, 4.0, 4.0]))


def test_reward_to_go_never_crosses_the_end_of_an_episode() -> None:
    done = torch.tensor([[False, True, False, False]])
    out = returns.reward_to_go(table([1.0, 2.0, 4.0, 8.0]), done, 0.5)
    assert_close(out, table([2.0, 2.0, 8.0, 8.0]))


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64, torch.float32])
def test_ends_may_be_ones_and_zeros(kind: torch.dtype) -> None:
    reward, done = torch.arange(1.0, 5.0).expand(2, 4), torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0]])
    assert_close(returns.reward_to_go(reward, done.to(kind), 0.5), returns.reward_to_go(reward, done.bool(), 0.5))
    given = (reward, reward, reward, done.bool())
    for ours, theirs in zip(*(returns.gae(*given, x, 0.5, 0.9) for x in (done.to(kind), done.bool())), strict=True):
        assert_close(ours, theirs)


def test_reward_to_go_without_discount_is_the_plain_sum_and_with_gamma_0_the_reward() -> None:
    reward = episodes()["reward"]
    done = torch.zeros_like(reward, dtype=torch.bool)
    assert_close(returns.reward_to_go(reward, done, 1.0), reward.flip(-1).cumsum(-1).flip(-1))
    assert_close(returns.reward_to_go(reward, done, 0.0), reward)


def test_reward_to_go_equals_torchrl() -> None:
    functional = pytest.importorskip("torchrl.objectives.value.functional")
    batch = episodes()
    batch["done"][:, -1] = True  # torchrl wants trajectories that end
    reward, done = batch["reward"].requires_grad_(), batch["done"]
    ours = returns.reward_to_go(reward, done, 0.9)
    theirs = functional.reward2go(reward.unsqueeze(-1), done.unsqueeze(-1), 0.9).squeeze(-1)
    assert_close(ours, theirs)
    assert_close(gradients(ours, [reward]), gradients(theirs, [reward]))


def test_total_return_by_hand_discounts_from_the_first_step_that_was_acted() -> None:
    mask = torch.tensor([[False, True, True, True], [True, True, False, False]])
    reward = table([9.0, 1.0, 2.0, 4.0], [3.0, 5.0, 9.0, 9.0])
    out = returns.total_return(reward, mask, 0.5)  # 1 + 2/2 + 4/4 = 3 and 3 + 5/2 = 5.5
    assert_close(out, table([3.0] * 4, [5.5] * 4))


def test_total_return_is_the_reward_to_go_of_the_first_step_in_value_and_gradient() -> None:
    reward = episodes()["reward"].requires_grad_()
    done = torch.zeros_like(reward, dtype=torch.bool)
    total, to_go = returns.total_return(reward, ~done, 0.9), returns.reward_to_go(reward, done, 0.9)[:, :1]
    assert_close(total, to_go.expand_as(reward))
    assert_close(gradients(total, [reward]), gradients(to_go.expand_as(reward), [reward]))


def test_total_return_of_a_row_of_several_episodes_is_that_of_each() -> None:
    mask = torch.tensor([[True, True, True, True, True, False]])
    done = torch.tensor([[False, True, False, False, True, False]])  # as where a life is lost, and the game goes on
    reward = table([1.0, 2.0, 4.0, 8.0, 1.0, 9.0])
    assert_close(returns.total_return(reward, mask, 0.5, done)[mask], table([2.0, 2.0, 8.25, 8.25, 8.25])[0])


# Bootstraps


def test_td_target_bootstraps_a_truncated_step_and_not_a_terminated_one() -> None:
    terminated = torch.tensor([False, True])  # both steps are the last of their episode
    out = returns.td_target(torch.tensor([1.0, 1.0]), torch.tensor([10.0, 10.0]), terminated, 0.9)
    assert_close(out, torch.tensor([10.0, 1.0]))


def test_td_target_equals_torchrl_in_value_and_gradient() -> None:
    functional = pytest.importorskip("torchrl.objectives.value.functional")
    batch = episodes()
    reward, next_value = batch["reward"].requires_grad_(), batch["next_value"].requires_grad_()
    ours = returns.td_target(reward, next_value, batch["terminated"], 0.9)
    done, terminated = batch["done"].unsqueeze(-1), batch["terminated"].unsqueeze(-1)
    theirs = functional.td0_return_estimate(
        0.9, next_value.unsqueeze(-1), reward.unsqueeze(-1), terminated=terminated, done=done
    ).squeeze(-1)
    assert_close(ours, theirs)
    assert_close(gradients(ours, [reward, next_value]), gradients(theirs, [reward, next_value]))


# Generalized advantage estimation


def test_gae_of_three_steps_by_hand() -> None:
    reward, value, after = table([1.0, 2.0, 3.0]), table([4.0, 2.0, 6.0]), table([2.0, 6.0, 8.0])
    no = torch.zeros(1, 3, dtype=torch.bool)
    advantage, target = returns.gae(reward, value, after, no, no, 0.5, 0.5)
    # δ = 1 + 1 − 4 = −2, 2 + 3 − 2 = 3, 3 + 4 − 6 = 1;  A = −2 + 3.25/4 = −1.1875, 3 + 1/4 = 3.25, 1
    assert_close(advantage, table([-1.1875, 3.25, 1.0]))
    assert_close(target, table([2.8125, 5.25, 7.0]))


def test_gae_bootstraps_a_truncated_step_and_not_a_terminated_one() -> None:
    reward, value, after = table([1.0, 1.0], [1.0, 1.0]), torch.zeros(2, 2), table([0.0, 8.0], [0.0, 8.0])
    done = torch.tensor([[False, True], [False, True]])
    terminated = torch.tensor([[False, True], [False, False]])
    advantage, _ = returns.gae(reward, value, after, terminated, done, 0.5, 1.0)
    assert_close(advantage, table([1.5, 1.0], [3.5, 5.0]))


def test_gae_cuts_the_trace_where_an_episode_was_truncated() -> None:
    done = torch.tensor([[True, False]])
    no = torch.zeros(1, 2, dtype=torch.bool)
    advantage, _ = returns.gae(table([1.0, 100.0]), torch.zeros(1, 2), table([2.0, 0.0]), no, done, 0.5, 1.0)
    assert_close(advantage, table([2.0, 100.0]))


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
def test_gae_equals_a_plain_loop_in_value_and_gradient(lam: float) -> None:
    batch = episodes(seed=1)
    inputs = [batch[key].requires_grad_() for key in ("reward", "value", "next_value")]
    advantage, target = returns.gae(**batch, gamma=0.9, lam=lam)
    loop = looped_gae(batch, 0.9, lam)
    assert_close(advantage, loop)
    assert_close(target, loop + batch["value"])
    assert_close(gradients(advantage, inputs), gradients(loop, inputs))


@pytest.mark.parametrize("lam", [0.0, 0.9375, 1.0])
def test_gae_equals_torchrl_in_value_and_gradient(lam: float) -> None:
    functional = pytest.importorskip("torchrl.objectives.value.functional")
    gamma = 0.96875  # torchrl computes γ·λ in float32, which holds these exactly
    batch = episodes(rows=4, time=33, seed=2)
    inputs = [batch[key].requires_grad_() for key in ("reward", "value", "next_value")]
    ours = returns.gae(**batch, gamma=gamma, lam=lam)
    last = {key: x.unsqueeze(-1) for key, x in batch.items()}
    theirs = functional.generalized_advantage_estimate(
        gamma, lam, last["value"], last["next_value"], last["reward"], last["done"], last["terminated"]
    )
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y.squeeze(-1))
        assert_close(gradients(x, inputs), gradients(y.squeeze(-1), inputs))


def test_gae_with_lambda_0_is_the_td_error() -> None:
    batch = episodes()
    advantage, target = returns.gae(**batch, gamma=0.9, lam=0.0)
    one_step = returns.td_target(batch["reward"], batch["next_value"], batch["terminated"], 0.9)
    assert_close(advantage, one_step - batch["value"])
    assert_close(target, one_step)


def test_gae_with_lambda_1_on_whole_episodes_is_the_return_minus_the_value() -> None:
    batch = episodes()
    batch["done"][:, -1] = True
    batch["terminated"] = batch["done"]
    batch["next_value"] = torch.cat([batch["value"][:, 1:], batch["value"][:, :1]], -1)
    advantage, target = returns.gae(**batch, gamma=0.9, lam=1.0)
    to_go = returns.reward_to_go(batch["reward"], batch["done"], 0.9)
    assert_close(advantage, to_go - batch["value"])
    assert_close(target, to_go)


def test_gae_of_the_true_values_is_zero_on_a_ring_that_never_ends_only_if_truncation_bootstraps() -> None:
    reward, value = torch.ones(1, 8), torch.full((1, 8), 10.0)  # V = 1 / (1 − 0.9)
    done = torch.tensor([[False] * 7 + [True]])
    advantage, _ = returns.gae(reward, value, value, torch.zeros_like(done), done, 0.9, 0.95)
    assert_close(advantage, torch.zeros(1, 8), rtol=0, atol=1e-5)
    wrong, _ = returns.gae(reward, value, value, done, done, 0.9, 0.95)
    assert_close(wrong[0, -1], torch.tensor(-9.0))


# Baselines


def test_standardize_by_hand_ignores_what_is_masked() -> None:
    x, mask = table([1.0, 3.0, 999.0, float("nan")]), torch.tensor([[True, True, False, False]])
    half = 0.5**0.5  # mean 2, unbiased std √2
    assert_close(returns.standardize(x, mask), table([-half, half, 0.0, 0.0]))


def test_standardize_takes_whole_numbers() -> None:
    """Their mean is not one."""
    x, mask = torch.tensor([1, 2, 4]), torch.tensor([True, True, True])
    assert_close(returns.standardize(x, mask), returns.standardize(x.float(), mask))


def test_standardize_equals_torch_std_mean_over_the_masked_elements_in_value_and_gradient() -> None:
    x = episodes()["reward"].requires_grad_()
    mask = episodes(seed=3)["done"]
    ours = returns.standardize(x, mask)
    theirs = torch.zeros_like(x).masked_scatter(mask, (x[mask] - x[mask].mean()) / (x[mask].std() + 1e-8))
    assert_close(ours, theirs)
    assert_close(gradients(ours, [x]), gradients(theirs, [x]))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 5.1, 123.4])
def test_standardize_makes_nothing_out_of_equal_values(value: float) -> None:
    mask = torch.ones(7, 11, dtype=torch.bool)
    assert_close(returns.standardize(torch.full((7, 11), value), mask), torch.zeros(7, 11), rtol=0, atol=0)


def test_standardize_of_one_element_or_of_none_is_zero() -> None:
    x = torch.tensor([[3.0, 5.0]])
    for mask in (torch.tensor([[True, False]]), torch.tensor([[False, False]])):
        assert_close(returns.standardize(x, mask), torch.zeros(1, 2), rtol=0, atol=0)


def test_group_centered_and_relative_by_hand() -> None:
    score = table([1.0, 0.0, 0.0, 1.0], [2.0, 4.0, 6.0, 8.0])
    assert_close(returns.group_centered(score), table([0.5, -0.5, -0.5, 0.5], [-3.0, -1.0, 1.0, 3.0]))
    std = torch.tensor([[(1 / 3) ** 0.5], [(20 / 3) ** 0.5]])  # unbiased: divisor G − 1
    assert_close(returns.group_relative(score), returns.group_centered(score) / (std + 1e-4))


def test_group_relative_equals_the_formulas_of_trl_and_verl_in_value_and_gradient() -> None:
    score = torch.randn(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    for eps in (1e-4, 1e-6):  # TRL's, verl's
        std, mean = torch.std_mean(score, -1, keepdim=True, correction=1)
        ours, theirs = returns.group_relative(score, eps), (score - mean) / (std + eps)
        assert_close(ours, theirs)
        assert_close(gradients(ours, [score]), gradients(theirs, [score]))


@pytest.mark.parametrize("group", [2, 3, 7, 8, 16])
@pytest.mark.parametrize("score", [0.0, 0.1, 1 / 3, 0.7, 1.0, 5.1])
def test_a_group_of_equal_scores_gets_exactly_zero(group: int, score: float) -> None:
    equal = torch.full((3, group), score)
    assert_close(returns.group_centered(equal), torch.zeros(3, group), rtol=0, atol=0)
    assert_close(returns.group_relative(equal), torch.zeros(3, group), rtol=0, atol=0)


def test_a_group_is_its_own_baseline_so_adding_a_constant_changes_nothing() -> None:
    score = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shift = torch.tensor([[1.0], [-2.0], [30.0], [0.5]], dtype=torch.float64)
    for function in (returns.group_centered, returns.group_relative):
        assert_close(function(score + shift), function(score))
        assert_close(function(score).sum(-1), torch.zeros(4, dtype=torch.float64))


def test_leave_one_out_is_the_centred_score_times_g_over_g_minus_1() -> None:
    score = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    others = (score.sum(-1, keepdim=True) - score) / 4  # RLOO, arXiv:2402.14740
    assert_close(returns.group_centered(score) * 5 / 4, score - others)


def test_best_and_worst_by_hand() -> None:
    best, worst, differ = returns.best_and_worst(table([0.0, 2.0, 1.0], [5.0, -1.0, 5.0], [3.0, 3.0, 3.0]))
    assert best.tolist()[:2] == [1, 0] and worst.tolist()[:2] == [0, 1]
    assert differ.tolist() == [True, True, False]
