"""Engines: weights in the precision that they compute in, and what is done where they differ from the learner."""

import copy
import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from rlkit.buffers import Rollout, flatten_groups
from rlkit.language.decoder import Decoder
from rlkit.language.engine import Native
from rlkit.language.generate import Completions, Rule, choose
from rlkit.language.model import Dtype, LanguageModel
from rlkit.language.precision import product
from rlkit.losses import reduction, truncated_importance
from rlkit.settings import config
from rlkit.settings.assemble import assemble

PROMPTS = ["What is 3 + 4?\n", "Bob has 5 apples.\n"]


def model(dtype: Dtype = "float32") -> LanguageModel:
    return LanguageModel.load("tiny", dtype=dtype)


def test_float32_writes_with_the_learners_own_weights() -> None:
    policy, engine = model(), Native()
    engine.sync(policy.decoder)
    assert engine.decoder is policy.decoder and engine.exact


def test_another_precision_keeps_its_buffers_and_follows_the_weights() -> None:
    policy, engine = model("bfloat16"), Native()
    engine.sync(policy.decoder)
    assert engine.decoder is not None and not engine.exact
    before = {name: x.data_ptr() for name, x in engine.decoder.named_parameters()}
    assert all(x.dtype == torch.bfloat16 and not x.requires_grad for x in engine.decoder.parameters())
    assert engine.decoder.frequencies.dtype == torch.float32
    with torch.no_grad():
        for x in policy.decoder.parameters():
            x.mul_(1.5)
    engine.sync(policy.decoder)
    newest = dict(policy.decoder.named_parameters())
    for name, x in engine.decoder.named_parameters():
        assert x.data_ptr() == before[name] and torch.equal(x, newest[name].bfloat16()), name


def test_what_first_wrote_in_inference_mode_writes_outside_of_it() -> None:
    policy = model("bfloat16")
    with torch.inference_mode():  # as rlkit.load(FOLDER).policy.complete
        first = policy.generate(PROMPTS, max_tokens=8, greedy=True)
    assert torch.equal(policy.generate(PROMPTS, max_tokens=8, greedy=True)["action"], first["action"])


def test_a_copy_of_a_policy_writes_with_its_own_weights() -> None:
    policy = model("bfloat16")
    first = policy.generate(PROMPTS, max_tokens=8, greedy=True)
    other = copy.deepcopy(policy)
    with torch.no_grad():
        for x in other.decoder.parameters():
            x.mul_(0.5)
    other.generate(PROMPTS, max_tokens=8, greedy=True)
    assert torch.equal(policy.generate(PROMPTS, max_tokens=8, greedy=True)["action"], first["action"])


def test_what_another_precision_wrote_is_credited_by_the_learner() -> None:
    policy = model("bfloat16")
    rollout = policy.generate(PROMPTS, repeats=4, max_tokens=24)
    said = rollout["log_prob"].clone()
    rollout = rollout.update(policy.record(rollout))
    assert torch.equal(rollout["sampler_log_prob"], said)
    rows = flatten_groups(rollout)
    with torch.no_grad():
        assert torch.equal(policy.evaluate(rows)["log_prob"], rows["log_prob"])  # the very same function
    gap = (rollout["log_prob"] - said)[rollout["mask"]].abs()
    assert 0 < gap.mean() < 0.05


def test_float32_records_nothing_twice() -> None:
    policy = model()
    assert policy.record(policy.generate(PROMPTS, max_tokens=4)) == {}


class Louder(Native):
    """An engine that is not the learner's function: it says that each token is twice as likely."""

    def sync(self, decoder: Decoder) -> None:
        super().sync(decoder)
        self.exact = False

    def write(self, *words: Any, **keys: Any) -> Completions:
        done = super().write(*words, **keys)
        done.log_prob += math.log(2)
        return done


def test_another_engine_is_weighed_and_never_believed() -> None:
    policy = model()
    policy.engine = Louder()
    rollout = policy.generate(PROMPTS, repeats=4, max_tokens=12)
    rollout = flatten_groups(rollout.update(policy.record(rollout)))
    mask = rollout["mask"]
    gap = (rollout["sampler_log_prob"] - rollout["log_prob"])[mask]
    assert_close(gap, torch.full_like(gap, math.log(2)), rtol=1e-4, atol=1e-4)
    rollout["advantage"] = mask.float()
    weights = []
    for buffer in (Rollout(0, over="token"), Rollout(0, over="token", sampler_cap=2.0)):
        buffer.extend(rollout.clone())
        weights.append(next(iter(buffer))["weight"])
    assert_close(weights[0], reduction(mask, "token"))
    assert_close(weights[1], weights[0] / 2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cap", [1.0, 2.0, math.inf])
def test_truncated_importance(cap: float) -> None:
    ours, theirs = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -1.0 + math.log(4), -1.0 - math.log(4)])
    assert_close(truncated_importance(ours, theirs, cap), torch.tensor([1.0, 0.25, min(4.0, cap)]))


@pytest.mark.slow
def test_gspo_clips_nothing_on_the_first_minibatch_in_bfloat16() -> None:
    """Rows of any grouping: its interval is 3e-4 wide, and two precisions differ by more than that."""
    words = "algo=gspo env=gsm8k env.rows=8 algo.group=4 algo.minibatches=4 policy.dtype=bfloat16"
    algo, env = (parts := assemble(config.read(words.split()))).algo, parts.env
    with torch.no_grad():
        algo.buffer.extend(algo.credit(algo.rollout(env)))
    noise = []
    for batch in algo.buffer:
        metrics = algo.loss(batch)[1]
        assert not (metrics["clip_fraction"] & batch["mask"]).any()
        noise.append((metrics["ratio"] - 1).abs().max())
    assert algo.clip_width == 3e-4 and torch.stack(noise).max() < algo.clip_width / 10


def test_no_token_without_probability_is_drawn_from_a_large_vocabulary() -> None:
    logits = torch.full((1, 150_000), -20.0)
    logits[0, 70_000] = 0.0
    logits[0, 149_999] = -torch.inf
    for u in (0.0, 0.5, 1 - 2**-24):
        token, log_prob = choose(logits.clone(), Rule(1.0, False, (0,)), torch.tensor([u]))
        assert token.item() != 149_999 and log_prob.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_products_are_at_least_float32(dtype: torch.dtype) -> None:
    a, b = torch.randn(3, 5, 4, dtype=dtype), torch.randn(3, 4, 6, dtype=dtype)
    whole = product(a, b)
    assert whole.dtype == torch.promote_types(dtype, torch.float32)
    assert_close(whole, a.to(whole.dtype) @ b.to(whole.dtype))
    assert_close(product(a[0], b[0]), whole[0])
