"""Preferences as a loss: DPO and its variants by hand, against TRL's own trainer, and what is refused."""

import math
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.fakes import Gives, RaggedText, algorithm, credited, gradient, gradient_of, off_policy, on_text, parameters
from support.small_model import model
from support.texts import write
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import losses
from rlkit.api import UserError
from rlkit.settings import plugins


def test_dpo_starts_at_log_2_where_policy_and_reference_are_equal() -> None:
    algo = on_text("dpo", RaggedText(), group=4)
    loss, metrics = algo.loss(credited(algo, algo.rollout(RaggedText())))
    assert_close(loss, torch.tensor(math.log(2), dtype=torch.float64))
    assert_close(metrics["margin"], torch.zeros_like(metrics["margin"]))


@pytest.mark.parametrize("side", ["sum", "mean"])
def test_a_margin_that_is_rounding_is_not_ahead(side: str) -> None:
    """The reference is read in other batches than the policy, which sum in another order."""
    algo = on_text("dpo", RaggedText(), group=4, side=side)
    batch = credited(algo, algo.rollout(RaggedText()))
    for x, ahead in ((1e-16, False), (1e-9, True)):
        nearby = batch.clone()
        nearby["ref_log_prob"] = batch["ref_log_prob"] - x * torch.tensor([1.0, -1.0])  # [K, 2]
        found = algo.loss(nearby)[1]["pair_accuracy"]
        assert len(found) and bool(found.any()) == bool(found.all()) == ahead


def test_dpo_pairs_the_best_with_the_worst_and_leaves_equal_groups_out() -> None:
    env = RaggedText(rows=3)
    algo = on_text("dpo", env, group=3, beta=0.5)
    rollout = algo.rollout(env)
    rollout["score"] = torch.tensor([[0.0, 2.0, 1.0], [4.0, 4.0, 4.0], [3.0, 5.0, -1.0]]).double()
    batch = credited(algo, rollout.clone())
    assert_close(batch["weight"], torch.tensor([0.5, 0.5]))
    algo.policy.move(0.3)
    each = []
    for start, best, worst in ((0, 1, 0), (2, 1, 2)):
        gap = []
        for attempt in (best, worst):
            row = rollout[start, attempt].unsqueeze(0)
            gap.append((algo.policy.evaluate(row)["log_prob"] - algo.reference.evaluate(row)["log_prob"]).sum())
        each.append(-torch.log(torch.sigmoid(0.5 * (gap[0] - gap[1]))))
    expected = torch.stack(each).mean()
    assert_close(algo.loss(batch)[0], expected)
    assert_close(gradient(algo, batch), gradient_of(algo, expected))
    assert algo.loss(batch)[1]["margin"].shape == (2,)


@pytest.mark.parametrize("algo", ["dpo", "reward_model"])
def test_minibatches_hold_pairs_and_no_equal_groups(algo: str) -> None:
    env = RaggedText(rows=8)
    learner = on_text(algo, env, group=2, minibatches=8)
    rollout = learner.rollout(env)
    rollout["score"] = torch.tensor([[0.0, 1.0], [1.0, 0.0], *[[1.0, 1.0]] * 6]).double()
    learner.buffer.extend(learner.credit(rollout))
    each = [learner.loss(batch)[0].item() for batch in learner.buffer]
    assert len(each) == 2 and min(each) > 0, "one minibatch for each pair"


@pytest.mark.parametrize("loss", ["sigmoid", "ipo", "hinge", "simpo"])
def test_groups_that_are_all_equal_change_nothing(loss: str) -> None:
    env = RaggedText(rows=3)
    algo = on_text("dpo", env, group=2, loss=loss)
    rollout = algo.rollout(env)
    rollout["score"] = torch.ones(3, 2)
    batch = credited(algo, rollout)
    assert algo.loss(batch)[0].item() == 0 and not gradient(algo, batch).any()


def test_the_gradient_of_dpo_pulls_every_chosen_and_pushes_every_rejected_token_alike() -> None:
    algo, batch = off_policy("dpo", {"group": 4, "beta": 0.5})
    leaf = algo.policy.evaluate(batch)["log_prob"].detach().requires_grad_()
    algo.policy.evaluate = lambda rows, entropy: {"log_prob": leaf.flatten(0, 1)}
    algo.loss(batch)[0].backward()
    margin = leaf.detach().sum(-1) - batch["ref_log_prob"]
    coefficient = 0.5 * torch.sigmoid(-0.5 * (margin[:, 0] - margin[:, 1])) / 5  # β·σ(−βΔ), mean over pairs
    sign = torch.tensor([-1.0, 1.0]).double()
    assert_close(leaf.grad, coefficient[:, None, None] * sign[:, None] * batch["mask"])


# The formulas, by hand: Δ = (−3 − −4) − (−5 − −2) = 4, and −4 with the sides exchanged.

SIDES = [torch.tensor([x, y], dtype=torch.float64) for x, y in ((-3, -5), (-5, -3), (-4, -2), (-2, -4))]


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize(
    ("found", "by_hand"),
    [
        (losses.dpo(*SIDES, 0.5), [-math.log(sigma(2)), -math.log(sigma(-2))]),
        (
            losses.dpo(*SIDES, 0.5, 0.1),
            [
                -0.9 * math.log(sigma(2)) - 0.1 * math.log(sigma(-2)),
                -0.9 * math.log(sigma(-2)) - 0.1 * math.log(sigma(2)),
            ],
        ),
        (losses.ipo(*SIDES, 0.5), [9.0, 25.0]),  # (4 − 1)², (−4 − 1)²
        (losses.hinge(*SIDES, 0.125), [0.5, 1.5]),  # 1 − ½, 1 + ½
        (losses.hinge(*SIDES, 0.5), [0.0, 3.0]),  # satisfied, 1 + 2
        (losses.simpo(*SIDES[:2], 2.0, 0.5), [-math.log(sigma(3.5)), -math.log(sigma(-4.5))]),  # ±2·2 − ½
        (losses.simpo(*SIDES[:2], 2.0, 0.0), [-math.log(sigma(4)), -math.log(sigma(-4))]),
        (losses.bradley_terry(*SIDES[:2]), [-math.log(sigma(2)), -math.log(sigma(-2))]),
        (losses.bradley_terry(*SIDES[:2], 0.5), [-math.log(sigma(1.5)), -math.log(sigma(-2.5))]),
    ],
    ids=["dpo", "cdpo", "ipo", "hinge", "hinge satisfied", "simpo", "simpo without margin", "bt", "bt with margin"],
)
def test_the_loss_of_a_pair_is_the_number_worked_by_hand(found: Tensor, by_hand: list[float]) -> None:
    assert_close(found, torch.tensor(by_hand, dtype=torch.float64))


def test_smoothed_labels_have_their_minimum_where_the_preference_is_as_certain_as_they_say() -> None:
    delta = torch.linspace(-8, 8, 3201, dtype=torch.float64)
    zero = torch.zeros_like(delta)
    best = delta[losses.dpo(delta, zero, zero, zero, 0.5, 0.2).argmin()]
    assert_close(torch.sigmoid(0.5 * best), torch.tensor(0.8, dtype=torch.float64), atol=1e-3, rtol=0)
    assert delta[losses.dpo(delta, zero, zero, zero, 0.5).argmin()] == 8  # unsmoothed: never enough
    assert_close(delta[losses.ipo(delta, zero, zero, zero, 0.5).argmin()], torch.tensor(1.0, dtype=torch.float64))


def test_the_losses_stay_finite_however_far_apart_the_sides_are() -> None:
    far = torch.tensor([1e4, -1e4], requires_grad=True)
    zero = torch.zeros(2)
    for each in (losses.dpo(far, zero, zero, zero, 1.0, 0.1), losses.simpo(far, zero, 2.0, 0.5)):
        (slope,) = torch.autograd.grad(each.sum(), far, retain_graph=True)
        assert bool(each.isfinite().all() and slope.isfinite().all())


# TRL: the code of its trainer, run on our log-probabilities


def trl_loss(loss_type: str, beta: float, now: Tensor, ref: Tensor, mask: Tensor, smoothing: float = 0.0) -> Tensor:
    """trl.DPOTrainer._compute_loss on log-probabilities [P, 2, T]; its rows are the chosen, then the rejected."""
    trainer = pytest.importorskip("trl.trainer.dpo_trainer").DPOTrainer

    def stacked(x: Tensor) -> Tensor:
        return x.transpose(0, 1).flatten(0, 1)

    tokens = torch.nn.functional.pad(stacked(mask).long(), (1, 0))  # there is one more of them than of their successors
    zeros = torch.zeros_like(stacked(now))
    out = SimpleNamespace(log_probs=stacked(now), entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
    state = SimpleNamespace(
        model=SimpleNamespace(training=True), loss_types=[loss_type], loss_weights=[1.0], beta=beta, ld_alpha=None,
        accelerator=SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x),
        f_divergence_type="reverse_kl", precompute_ref_logps=True, aux_loss_enabled=False, use_weighting=False,
        label_smoothing=smoothing,
        _metrics={"train": defaultdict(list)}, _total_train_tokens=0, _tp_size=1,
    )  # fmt: skip
    chosen, rejected = ref.sum(-1).unbind(-1)
    inputs = {"input_ids": tokens, "attention_mask": tokens, "completion_mask": tokens}
    inputs |= {"ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
    return trainer._compute_loss(state, lambda **given: out, inputs, False)


VARIANTS = [
    ("sigmoid", {"loss": "sigmoid"}),
    ("sigmoid_norm", {"loss": "sigmoid", "side": "mean"}),
    ("ipo", {"loss": "ipo", "side": "mean"}),
    ("hinge", {"loss": "hinge"}),
]


@pytest.mark.slow  # importing its trainer takes seconds
@pytest.mark.parametrize(("loss_type", "config"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_a_variant_is_trls_in_value_and_gradient(loss_type: str, config: dict) -> None:
    algo, batch = off_policy("dpo", {"group": 4, "beta": 0.5, **config})
    algo.reference.move(0.2, seed=5)
    flat = TensorDict({key: batch[key].flatten(0, 1) for key in ("observation", "action", "mask")}, [2 * len(batch)])
    now, ref = (who.evaluate(flat)["log_prob"].unflatten(0, (-1, 2)) for who in (algo.policy, algo.reference))
    batch["ref_log_prob"] = ref.detach().sum(-1)
    expected = trl_loss(loss_type, 0.5, now, ref.detach(), batch["mask"])
    assert_close(algo.loss(batch)[0], expected)
    assert_close(gradient(algo, batch), gradient_of(algo, expected))


@pytest.mark.slow
def test_label_smoothing_changes_trls_robust_loss_and_not_its_sigmoid_as_the_pages_say() -> None:
    now, ref = torch.randn(2, 4, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).neg().unbind(0)
    mask = torch.ones(4, 2, 3, dtype=torch.bool)
    plain, smoothed = (trl_loss("sigmoid", 0.5, now, ref, mask, x) for x in (0.0, 0.1))
    assert_close(plain, smoothed)
    assert trl_loss("robust", 0.5, now, ref, mask, 0.1) != plain
    docs = Path(__file__).parents[2] / "docs"
    for page in ("trl.md", "coming_from/trl.md"):
        [row] = [x for x in (docs / page).read_text(encoding="utf-8").splitlines() if "label_smoothing" in x]
        assert "there only robust" in row or "does not read it there" in row


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", ["simpo", "sigmoid", "hinge", "ipo"])
def test_without_a_reference_a_variant_is_that_of_trls_cpo_trainer(loss_type: str, smoothing: float) -> None:
    trainer = pytest.importorskip("trl.experimental.cpo.cpo_trainer").CPOTrainer
    smoothing = smoothing if loss_type in ("simpo", "sigmoid") else 0.0
    state = SimpleNamespace(
        alpha=0.0, loss_type=loss_type, beta=2.0, simpo_gamma=0.5, label_smoothing=smoothing,
        accelerator=SimpleNamespace(device="cpu"),
    )  # fmt: skip
    config = {"loss": loss_type, "reference": "none", "beta": 2.0, "label_smoothing": smoothing}
    algo, batch = off_policy("dpo", {"group": 4, **config})
    flat = TensorDict({key: batch[key].flatten(0, 1) for key in ("observation", "action", "mask")}, [2 * len(batch)])
    sides = algo.policy.evaluate(flat)["log_prob"].unflatten(0, (-1, 2)).sum(-1)
    if loss_type == "simpo":
        sides = sides / batch["mask"].sum(-1)
    expected = trainer.cpo_loss(state, *sides.unbind(-1))[0].mean()
    assert_close(algo.loss(batch)[0], expected)
    assert_close(gradient(algo, batch), gradient_of(algo, expected))


@pytest.mark.parametrize("side", ["sum", "mean"])
def test_ipo_takes_whole_sides_as_the_paper_does_or_means_as_trl_does(side: str) -> None:
    algo, batch = off_policy("dpo", {"group": 4, "beta": 0.5, "loss": "ipo", "side": side})
    flat = TensorDict({key: batch[key].flatten(0, 1) for key in ("observation", "action", "mask")}, [2 * len(batch)])
    ratio = [who.evaluate(flat)["log_prob"].unflatten(0, (-1, 2)).sum(-1) for who in (algo.policy, algo.reference)]
    gap = ratio[0] - ratio[1]
    gap = gap / batch["mask"].sum(-1) if side == "mean" else gap
    expected = (gap[:, 0] - gap[:, 1] - 1).square().mean()
    assert_close(algo.loss(batch)[0], expected)
    assert_close(gradient(algo, batch), gradient_of(algo, expected))


# The reference


ROWS = [
    {"prompt": f"How many apples has Ann? {n}", "chosen": "12 apples", "rejected": "3 pears and more"} for n in range(6)
]


def stored_pairs(tmp_path: Any, rows: list[dict[str, Any]]) -> Any:
    plugin = plugins.load("envs", "preferences")
    return plugin.make(
        plugin.Config(source=write(tmp_path / "pairs.jsonl", rows), rows=4, validation=0, test=0), 0, "cpu"
    )


def test_a_stored_reference_gives_the_loss_and_the_step_of_the_computed_one(tmp_path: Any) -> None:
    start = model()
    batch = start.encode(
        [row["prompt"] for row in ROWS for _ in range(2)],
        [row[side] for row in ROWS for side in ("chosen", "rejected")],
    )
    sums = start.evaluate(batch)["log_prob"].sum(-1).view(-1, 2).tolist()
    rows = [
        {**row, "ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
        for row, (chosen, rejected) in zip(ROWS, sums, strict=True)
    ]
    found = []
    for reference in ("computed", "stored"):
        env = stored_pairs(tmp_path, rows)
        algo = algorithm("dpo", env, Gives(model()), group=2, reference=reference, lr=1e-2)
        for _ in range(2):
            batch = credited(algo, algo.rollout(env))
            loss, metrics = algo.loss(batch)
            algo.optimizer.zero_grad()
            loss.backward()
            algo.optimizer.step()
        found.append((loss.detach(), metrics["margin"].detach(), parameters(algo.policy)))
    assert found[0][1].abs().min() > 1e-3  # the second step is away from the start
    for computed, stored in zip(*found, strict=True):
        assert_close(stored, computed, atol=1e-4, rtol=1e-4)


def test_a_stored_reference_is_at_temperature_1(tmp_path: Any) -> None:
    """The file's log π says nothing of another temperature, at which the policy's own would be computed."""
    rows = [{**row, "ref_chosen_logps": -1.0, "ref_rejected_logps": -2.0} for row in ROWS]
    tempered = model()
    tempered.temperature = 0.7
    with pytest.raises(UserError, match=r"^algo.reference=stored with policy.temperature=0.7: .* at temperature 1; "):
        algorithm("dpo", stored_pairs(tmp_path, rows), Gives(tempered), group=2, reference="stored")
    for reference in ("computed", "none"):
        algorithm("dpo", stored_pairs(tmp_path, rows), Gives(tempered), group=2, reference=reference)


def test_no_reference_is_a_reference_of_0() -> None:
    algo, batch = off_policy("dpo", {"group": 4, "beta": 0.5, "reference": "none"})
    assert algo.reference is None and not batch["ref_log_prob"].any()
    flat = TensorDict({key: batch[key].flatten(0, 1) for key in ("observation", "action", "mask")}, [2 * len(batch)])
    sides = algo.policy.evaluate(flat)["log_prob"].sum(-1).view(-1, 2)
    assert_close(algo.loss(batch)[0], -torch.log(torch.sigmoid(0.5 * (sides[:, 0] - sides[:, 1]))).mean())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"loss": "simpo", "reference": "stored"}, "simpo has no reference"),
        ({"group": 1}, "at least 2 attempts"),
        ({"reference": "stored"}, "ref_chosen_logps and ref_rejected_logps, and here are none"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line(config: dict, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        on_text("dpo", RaggedText(), **config)
    assert "\n" not in str(error.value)


def test_a_file_without_the_columns_of_a_reference_is_refused(tmp_path: Any) -> None:
    env = stored_pairs(tmp_path, ROWS)
    with pytest.raises(UserError, match="ref_chosen_logps and ref_rejected_logps, and here are none"):
        algorithm("dpo", env, None, group=2, reference="stored")
