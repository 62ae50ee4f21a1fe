"""The GRPO family: what each member does differently, by hand, in its limits, and as one gradient against another."""

import math
from typing import Any

import pytest
import torch
from support.fakes import (
    CENTERED,
    SCORES,
    RaggedText,
    algorithm,
    cartpole,
    credited,
    gradient,
    gradient_of,
    iterate,
    off_policy,
    on_text,
    parameters,
    with_scores,
)
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies
from rlkit.api import UserError

MEMBERS = ["grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "gspo", "cispo", "gmpo", "sapo", "bnpo"]


@pytest.mark.parametrize("text", [False, True], ids=["control", "text"])
@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_makes_the_better_attempts_likelier(name: str, text: bool) -> None:
    config: dict[str, Any] = {"group": 4, "minibatches": 2, "kl_coef": 0.1} | ({"length": 8} if text else {})
    env = RaggedText() if text else cartpole(4)
    algo = on_text(name, env, **config) if text else algorithm(name, env, policies.Network(), **config)
    played = iterate(algo, env).flatten(0, 1)
    assert bool(parameters(algo.policy).isfinite().all())
    change = (algo.policy.evaluate(played)["log_prob"].detach() - played["log_prob"]) * played["mask"]
    better = played["score"] - played["score"].mean()
    assert float((change.sum(-1) * better).sum()) > 0


@pytest.mark.parametrize(
    "name", [name for name in MEMBERS if name not in ("grpo", "rloo", "reinforce_pp", "bnpo", "dr_grpo")]
)
def test_on_the_first_update_every_surrogate_has_the_policy_gradient(name: str) -> None:
    results = []
    for member in ("grpo", name):
        algo = on_text(member, RaggedText(), group=4, over="sequence")
        results.append(gradient(algo, credited(algo, algo.rollout(RaggedText()))))
    assert_close(results[0], results[1])


# Advantages


def advantages(name: str, scores: Tensor, **config: Any) -> Tensor:
    """One number a row: the advantage at its acting steps, which are all alike."""
    algo, rollout = with_scores(name, scores, **config)
    batch = algo.credit(rollout)
    lows = batch["advantage"].masked_fill(~batch["mask"], math.inf).amin(-1)
    assert_close(lows, batch["advantage"].masked_fill(~batch["mask"], -math.inf).amax(-1))
    return lows.view(scores.shape)


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("grpo", {"std_eps": 0.0}, CENTERED / 0.5),  # Σ centred² = 3/4, over 3
        ("grpo", {"std_eps": 0.0, "std": "biased"}, CENTERED / (3**0.5 / 4)),  # over 4
        ("grpo", {"std_eps": 0.0, "scale": "batch"}, CENTERED / (2 / 7) ** 0.5),  # 8 scores, half right: 2/7
        ("dr_grpo", {"length": 6}, CENTERED),
        ("rloo", {}, torch.tensor([[1.0, -1 / 3, -1 / 3, -1 / 3], [1 / 3, 1 / 3, 1 / 3, -1.0]]).double()),
        # p = 1/4 and 3/4 have the moments of Beta(3/2, 3/2): then the density at p is 8/π·√(p(1 − p)), GRPO's scale
        ("bnpo", {}, CENTERED * math.pi / 8 / (3**0.5 / 4)),
    ],
)
def test_advantages_by_hand(name: str, config: dict, expected: Tensor) -> None:
    assert_close(advantages(name, SCORES, **config), expected)


def test_bnpo_gives_nothing_to_groups_of_equal_scores_and_stays_finite() -> None:
    for scores in (torch.zeros(3, 4), torch.ones(3, 4), torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])):
        found = advantages("bnpo", scores)
        assert bool(found.isfinite().all())
        assert not found[scores.amax(-1) == scores.amin(-1)].any()


def test_bnpo_brings_returns_to_the_unit_interval_first() -> None:
    assert_close(advantages("bnpo", 500 * SCORES), advantages("bnpo", SCORES))
    assert_close(advantages("bnpo", 2 * SCORES - 1), advantages("bnpo", SCORES))


def test_reinforce_pp_standardises_the_reward_to_go_over_all_steps() -> None:
    algo, rollout = with_scores("reinforce_pp", torch.tensor([[3.0], [5.0], [-1.0]]), std="biased")
    batch = algo.credit(rollout)
    mask = batch["mask"]
    worth = torch.tensor([[3.0], [5.0], [-1.0]]).double().expand_as(mask)[mask]  # one reward at the end, γ = 1
    assert_close(batch["advantage"][mask], (worth - worth.mean()) / worth.std(correction=0))


def test_reinforce_pp_with_a_group_baseline_subtracts_the_mean_of_the_start_first() -> None:
    algo, rollout = with_scores("reinforce_pp", SCORES, baseline="group")
    batch = algo.credit(rollout)
    mask = batch["mask"]
    worth = CENTERED.flatten()[:, None].expand_as(mask)[mask]
    assert_close(batch["advantage"][mask], (worth - worth.mean()) / (worth.std() + 1e-8))


# KL


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
def test_the_penalty_in_the_reward_lowers_the_score_before_the_group_is_compared(kl: str) -> None:
    algo, rollout = with_scores("grpo", SCORES, kl_coef=0.1, kl_in="reward", kl=kl, scale="none")
    algo.reference.move(0.5)
    batch = algo.credit(rollout.clone())
    with torch.no_grad():
        ref = algo.reference.evaluate(rollout.flatten())["log_prob"].view_as(rollout["mask"])
    gap = (rollout["log_prob"] - ref) * rollout["mask"]
    each = {"k1": gap, "k2": gap**2 / 2, "k3": (torch.exp(-gap) - 1 + gap) * rollout["mask"]}[kl]
    score = rollout["score"] - 0.1 * each.sum(-1)
    expected = (score - score.mean(-1, keepdim=True)).flatten()[:, None] * batch["mask"]
    assert_close(batch["advantage"], expected)


def test_in_reinforce_pp_the_penalty_falls_due_step_by_step() -> None:
    algo, rollout = with_scores("reinforce_pp", torch.ones(4, 1), kl_coef=0.5)
    algo.reference.move(0.5)
    batch = algo.credit(rollout.clone())
    mask = batch["mask"]
    gap = ((batch["log_prob"] - batch["ref_log_prob"]) * mask).tolist()
    worth = [
        1 - 0.5 * sum(gap[b][t:]) for b in range(4) for t in range(mask.shape[1]) if mask[b, t]
    ]  # one reward of 1 at the end
    expected = torch.tensor(worth).double()
    assert_close(batch["advantage"][mask], (expected - expected.mean()) / (expected.std() + 1e-8))


@pytest.mark.parametrize(
    ("name", "config"),
    [("reinforce_pp", {"kl": "k1"}), ("rloo", {"kl": "k1"}), ("grpo", {"kl": "k1", "scale": "batch"})],
)
def test_a_penalty_of_rounding_alone_is_0(name: str, config: dict[str, Any]) -> None:
    algo, rollout = with_scores(name, torch.ones(4, 2), kl_coef=0.5, kl_in="reward", **config)
    algo.reference.move(1e-14)
    rollout["reward"], rollout["score"] = torch.zeros_like(rollout["reward"]), torch.zeros_like(rollout["score"])
    assert not algo.credit(rollout)["advantage"].any()


def test_k1_in_the_loss_is_refused_with_the_reason_and_unbiased_in_the_reward_too() -> None:
    with pytest.raises(UserError, match=r"algo\.kl=k1 .*expected gradient of k1 is zero"):
        algorithm("grpo", cartpole(2), policies.Network(), kl="k1", kl_coef=0.1)
    with pytest.raises(UserError, match=r"algo\.kl=unbiased corrects a gradient"):
        algorithm("rloo", cartpole(2), policies.Network(), kl="unbiased", kl_coef=0.1)


@pytest.mark.parametrize("kl", ["k2", "k3", "unbiased"])
def test_the_penalty_in_the_loss_is_its_own_term(kl: str) -> None:
    config = {"group": 4, "kl": kl, "kl_coef": 0.3}
    algo, batch = off_policy("grpo", config)
    plain, same = off_policy("grpo", {"group": 4})
    assert len(batch) == len(same)
    now = algo.policy.evaluate(batch)["log_prob"]
    gap = batch["ref_log_prob"] - now
    k3 = gap.exp() - 1 - gap
    penalty = {"k2": gap**2 / 2, "k3": k3, "unbiased": (now - batch["log_prob"]).exp() * k3}[kl]
    term = 0.3 * (penalty * batch["weight"]).sum()
    assert_close(algo.loss(batch)[0] - term, plain.loss(same)[0])
    assert_close(gradient(algo, batch), gradient(plain, same) + gradient_of(algo, term))


def test_a_penalty_in_the_reward_is_no_term_of_the_loss() -> None:
    paid = {"group": 4, "scale": "none", "kl": "k2", "kl_coef": 0.3, "kl_in": "reward"}
    (algo, batch), (plain, _) = off_policy("grpo", paid), off_policy("grpo", {"group": 4, "scale": "none"})
    assert_close(algo.loss(batch)[0], plain.loss(batch)[0])


def test_a_clipped_estimate_of_the_divergence_is_cut_at_both_ends() -> None:
    algo = algorithm(
        "grpo", cartpole(2), policies.Network(), kl_coef=0.1, kl="k1", kl_in="reward", scale="none", kl_clip=0.5
    )
    batch = {"ref_log_prob": torch.tensor([-2.0, -1.2, 0.0])}
    assert_close(algo.config.divergence(torch.tensor([-1.0, -1.0, -1.0]), batch), torch.tensor([0.5, 0.2, -0.5]))


# Ratios


def test_the_ratio_of_a_row_is_the_geometric_mean_in_gspo_and_the_product_in_rloo() -> None:
    for name, power in (("gspo", "mean"), ("rloo", "sum")):
        algo, batch = off_policy(name, {"group": 4, "clip_low": 0.3, "clip_high": 0.2})
        mask = batch["mask"]
        total = ((algo.policy.evaluate(batch)["log_prob"] - batch["log_prob"]) * mask).sum(-1)
        ratio = torch.exp(total / (mask.sum(-1) if power == "mean" else 1))
        advantage = batch["advantage"].sum(-1) / mask.sum(-1)
        each = -torch.minimum(ratio * advantage, ratio.clamp(0.7, 1.2) * advantage)
        assert_close(algo.loss(batch)[0], each.mean())
        assert_close(gradient(algo, batch), gradient_of(algo, each.mean()))


def test_a_row_of_gspo_is_clipped_as_a_whole() -> None:
    algo, batch = off_policy("gspo", {"group": 4})
    clipped = algo.loss(batch)[1]["clip_fraction"] & batch["mask"]
    share = clipped.sum(-1) / batch["mask"].sum(-1)
    assert set(share.tolist()) == {0.0, 1.0}


def test_rloo_with_one_update_is_reinforce_with_the_others_as_baseline() -> None:
    algo, rollout = with_scores("rloo", SCORES)
    batch = credited(algo, rollout)
    baseline = (SCORES.sum(-1, keepdim=True) - SCORES) / 3
    log_prob = (algo.policy.evaluate(batch)["log_prob"] * batch["mask"]).sum(-1)
    by_hand = -((SCORES - baseline).double().flatten() * log_prob).mean()
    assert_close(gradient(algo, batch), gradient_of(algo, by_hand))


def test_cispo_never_loses_a_gradient_that_ppo_clips_away() -> None:
    algo, batch = off_policy("cispo", {"group": 4, "clip_low": 0.2, "clip_high": 0.2})
    leaf = algo.policy.evaluate(batch)["log_prob"].detach().requires_grad_()
    algo.policy.evaluate = lambda _: {"log_prob": leaf, "entropy": torch.zeros_like(leaf)}
    algo.loss(batch)[0].backward()
    ratio = (leaf.detach() - batch["log_prob"]).exp().clamp(0.8, 1.2)
    assert_close(leaf.grad, -ratio * batch["advantage"] * batch["weight"])
    assert bool(algo.loss(batch)[1]["clip_fraction"].any())


def test_the_constant_of_dr_grpo_is_the_longest_attempt_unless_it_is_given() -> None:
    env = cartpole(2, step_limit=50)
    assert algorithm("dr_grpo", env, policies.Network()).buffer.length == 50
    with pytest.raises(UserError, match=r"does not say how long .* set algo\.length"):
        on_text("dr_grpo", RaggedText())


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("bnpo", {"beta": False, "kl_coef": 0.1, "kl_in": "reward"}, r"algo\.scale=none or batch"),
        ("grpo", {"kl_coef": 0.1, "kl_in": "reward"}, r"algo\.scale=none or batch"),
        ("grpo", {"kl_coef": 0.1, "kl": "unbiased", "kl_clip": 5.0}, "would bias"),
        ("bnpo", {"kl_coef": 0.1, "kl": "k1"}, "expected gradient of k1 is zero"),
        ("reinforce_pp", {"group": 4, "baseline": "group", "gamma": 0.9}, r"leave algo\.gamma=1"),
        ("reinforce_pp", {"baseline": "group"}, r"at least 2 attempts .* not algo\.group=1"),
    ],
)
def test_settings_that_would_do_nothing_or_harm_are_refused(name: str, config: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        algorithm(name, cartpole(2), policies.Network(), **config)


def test_a_penalty_in_the_reward_is_no_division_by_the_deviation_in_bnpo() -> None:
    assert algorithm("bnpo", cartpole(2), policies.Network(), kl_coef=0.1, kl_in="reward").config.in_reward


def test_the_clip_fraction_is_that_of_the_members_own_clip() -> None:
    for name in ("grpo", "cispo", "gmpo", "sapo"):
        algo, batch = off_policy(name, {"group": 4} | ({} if name == "sapo" else {"clip_low": 0.2, "clip_high": 0.3}))
        assert algo.clip_width == (0.2 if name == "grpo" else math.inf)
        log_ratio, up = algo.policy.evaluate(batch)["log_prob"] - batch["log_prob"], batch["advantage"] > 0
        expected = {
            "grpo": torch.where(up, log_ratio.exp() > 1.3, log_ratio.exp() < 0.8) & (batch["advantage"] != 0),
            "cispo": (log_ratio.exp() > 1.3) | (log_ratio.exp() < 0.8),
            "gmpo": torch.where(up, log_ratio > 0.3, log_ratio < -0.2) & batch["mask"],
            "sapo": torch.zeros_like(up),
        }[name]
        found = algo.loss(batch)[1]["clip_fraction"] & batch["mask"]
        assert torch.equal(found, expected & batch["mask"]) and bool(expected.any()) == (name != "sapo")


def test_bnpo_bounds_what_one_unusual_start_weighs() -> None:
    scores = (torch.arange(8) < 4).float().repeat(64, 1)
    scores[0, 1:4] = 0  # one start in 64 solves 1 of 8, the others 4
    assert 5 < float(advantages("bnpo", scores).abs().max()) <= 10
