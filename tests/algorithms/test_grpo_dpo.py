"""Groups and pairs: the formulas of TRL, the facts about GRPO's first update, DPO by hand."""

import math
from typing import Any

import pytest
import torch
from support.fakes import (
    RaggedText,
    credited,
    gradient,
    gradient_of,
    off_policy,
    on_text,
)
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

# GRPO


def trl_loss(now: Tensor, batch: TensorDict, over: str, beta: float, length: int) -> Tensor:
    """trl/trainer/grpo_trainer.py, in its own terms."""
    old, ref, advantages, m = batch["log_prob"], batch["ref_log_prob"], batch["advantage"], batch["mask"].double()
    coef_1 = torch.exp(now - old)
    coef_2 = torch.clamp(coef_1, 1 - 0.2, 1 + 0.28)
    per_token_loss = -torch.min(coef_1 * advantages, coef_2 * advantages)
    per_token_loss = per_token_loss + beta * (torch.exp(ref - now) - (ref - now) - 1)
    if over == "sequence":
        return ((per_token_loss * m).sum(-1) / m.sum(-1).clamp(min=1.0)).mean()
    if over == "token":
        return (per_token_loss * m).sum() / m.sum().clamp(min=1.0)
    return (per_token_loss * m).sum() / (len(m) * length)


@pytest.mark.parametrize("over", ["sequence", "token", "constant"])
def test_grpo_equals_trls_loss_in_value_and_gradient(over: str) -> None:
    config = {"group": 4, "kl_coef": 0.3, "over": over, "length": 6, "clip_high": 0.28}
    algo, batch = off_policy("grpo", config)
    expected = trl_loss(algo.policy.evaluate(batch)["log_prob"], batch, over, 0.3, 6)
    assert_close(algo.loss(batch)[0], expected)
    assert_close(gradient(algo, batch), gradient_of(algo, expected))
    assert bool(algo.loss(batch)[1]["clip_fraction"].any())


def test_grpo_compares_each_attempt_with_its_own_group() -> None:
    env = RaggedText(rows=2)
    algo = on_text("grpo", env, group=2)
    rollout = algo.rollout(env)
    rollout["score"] = torch.tensor([[1.0, 0.0], [5.0, 9.0]]).double()
    batch = algo.credit(rollout)
    first = 0.5 / (0.5**0.5 + 1e-4)  # (1 − ½) / (std + ε), std unbiased
    second = 2.0 / (8**0.5 + 1e-4)
    expected = torch.tensor([[first], [-first], [-second], [second]]).double()
    assert_close(batch["advantage"], expected * batch["mask"])


def as_leaf(algo: Any, batch: TensorDict) -> Tensor:
    """Make the policy's log-probabilities the only parameter: equal to those of the behavior, on the first update."""
    leaf = batch["log_prob"].clone().requires_grad_()
    algo.policy.evaluate = lambda batch: {"log_prob": leaf, "entropy": torch.zeros_like(leaf)}
    return leaf


def test_with_one_update_per_rollout_the_grpo_loss_is_zero_but_its_gradient_is_not() -> None:
    algo = on_text("grpo", RaggedText(), group=4)
    batch = credited(algo, algo.rollout(RaggedText()))
    loss, _ = algo.loss(batch)
    assert_close(loss, torch.zeros((), dtype=torch.float64))
    assert float(gradient(algo, batch).norm()) > 0.1


def test_the_value_of_that_loss_is_beta_times_the_divergence_from_the_reference() -> None:
    algo = on_text("grpo", RaggedText(), group=4, kl_coef=0.3)
    algo.reference.move(0.5)
    batch = credited(algo, algo.rollout(RaggedText()))
    k3 = torch.exp(batch["ref_log_prob"] - batch["log_prob"]) - (batch["ref_log_prob"] - batch["log_prob"]) - 1
    steps = batch["mask"].sum(-1)
    loss = algo.loss(batch)[0].detach()
    assert_close(loss, 0.3 * (k3.sum(-1) / steps).mean())
    assert float(loss) > 0.01


@pytest.mark.parametrize("over", ["sequence", "token"])
@pytest.mark.parametrize("beta", [0.0, 0.04, 1.5])
def test_the_gradient_coefficient_of_a_token_is_a_plus_beta_times_the_ratio_minus_1(over: str, beta: float) -> None:
    algo = on_text("grpo", RaggedText(), group=4, kl_coef=beta, over=over)
    if beta:
        algo.reference.move(0.5)
    batch = credited(algo, algo.rollout(RaggedText()))
    leaf = as_leaf(algo, batch)
    algo.loss(batch)[0].backward()
    ratio = torch.exp(batch["ref_log_prob"] - batch["log_prob"]) if beta else torch.ones_like(leaf)
    coefficient = batch["advantage"] + beta * (ratio - 1)  # arXiv:2402.03300, eq. 21
    mask = batch["mask"]
    steps = mask.sum(-1, keepdim=True) * len(mask) if over == "sequence" else mask.sum()
    assert_close(leaf.grad, -coefficient * mask / steps)


def test_the_later_epochs_of_grpo_are_off_policy_and_clip() -> None:
    algo = on_text("grpo", RaggedText(), group=4, epochs=3, lr=0.1)
    with torch.no_grad():
        algo.buffer.extend(algo.credit(algo.rollout(RaggedText())))
    seen = []
    for batch in algo.buffer:
        loss, metrics = algo.loss(batch)
        seen.append((metrics["kl"].max().item(), metrics["clip_fraction"].sum().item()))
        algo.optimizer.zero_grad()
        loss.backward()
        algo.optimizer.step()
    assert seen[0] == (0, 0) and min(kl for kl, _ in seen[1:]) > 0 and seen[2][1] > 0


def test_grpo_without_scaling_or_clipping_is_reinforce_with_the_group_as_baseline() -> None:
    env = RaggedText()
    algo = on_text("grpo", env, group=4, scale="none", over="token", clip_low=math.inf, clip_high=math.inf)
    rollout = algo.rollout(env)
    batch = credited(algo, rollout.clone())
    score, mask = rollout["score"], batch["mask"]
    centered = (score - score.mean(-1, keepdim=True)).flatten().unsqueeze(-1)
    by_hand = -(centered * algo.policy.evaluate(batch)["log_prob"] * mask).sum() / mask.sum()
    assert_close(gradient(algo, batch), gradient_of(algo, by_hand))


@pytest.mark.parametrize("config", [{}, {"kl_coef": 0.3}, {"entropy_coef": 0.3}])
def test_groups_of_equal_scores_are_left_out_only_where_they_would_add_nothing(config: dict) -> None:
    algo = on_text("grpo", RaggedText(rows=3), group=2, **config)
    rollout = algo.rollout(RaggedText(rows=3))
    rollout["score"] = torch.tensor([[0.1, 0.1], [1.0, 0.0], [0.0, 0.0]])
    assert len(credited(algo, rollout)) == (6 if config else 2)
