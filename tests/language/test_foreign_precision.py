"""Precisions of what transformers computes: bfloat16 and float64, and a head with a bias and a cap."""

from pathlib import Path

import pytest
import torch
from support.small_model import ANSWERS, LONG
from torch.testing import assert_close

from rlkit.language.foreign_folders import read_foreign
from rlkit.language.logprob import token_log_probs
from rlkit.language.model import LanguageModel
from rlkit.seeding import generator

pytest.importorskip("transformers")
from support.foreign_folders import GPT2, write  # they import transformers


def test_in_bfloat16_the_engine_and_the_learner_multiply_the_head_alike(tmp_path: Path) -> None:
    """OPT-350m projects its states at the end, so they come out in bfloat16 themselves."""
    write(tmp_path, "opt", word_embed_proj_dim=16, do_layer_norm_before=False)
    decoder = read_foreign(tmp_path, torch.bfloat16)
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        hidden = decoder.hidden(ids)[0]
        said = decoder.logits(hidden).log_softmax(-1).gather(1, ids.T)[:, 0]
        assert hidden.dtype == torch.bfloat16
        assert_close(decoder.log_probs(hidden, ids[0], 1.0, False)[0], said)


@pytest.mark.parametrize(("kind", "sizes"), [("gptj", {**GPT2, "rotary_dim": 4}), ("mixtral", {})])
def test_in_float64_nothing_is_rounded_to_bfloat16(kind: str, sizes: dict[str, object], tmp_path: Path) -> None:
    """GPT-J computes some angles in float32 whatever its precision; Mixtral's experts need another product."""
    write(tmp_path, kind, **sizes)
    policy, single = LanguageModel.load(tmp_path, dtype="float64"), LanguageModel.load(tmp_path)
    batch = single.encode(LONG, ANSWERS)
    found, wanted = (each.evaluate(batch)["log_prob"] for each in (policy, single))
    assert found.dtype == torch.float64
    assert_close(found, wanted.double(), rtol=0, atol=1e-5)
    found.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("biased", [True, False])
def test_bias_and_cap_count_in_value_and_gradient(dtype: torch.dtype, cap: float | None, biased: bool) -> None:
    draw = generator(0, "capped")
    hidden, weight = (torch.randn(n, 8, generator=draw, dtype=dtype).requires_grad_() for n in (11, 30))
    bias = torch.randn(30, generator=draw, dtype=dtype).requires_grad_() if biased else None
    target, by = torch.randint(0, 30, (11,), generator=draw), torch.randn(2, 11, generator=draw, dtype=dtype)
    plain = torch.nn.functional.linear(hidden, weight, bias)
    plain = plain if cap is None else cap * torch.tanh(plain / cap)
    log_policy = (plain / 0.6).log_softmax(-1)
    expected = log_policy.gather(1, target[:, None])[:, 0], -(log_policy.exp() * log_policy).sum(-1)
    found = token_log_probs(hidden, weight, target, 0.6, 4, bias=bias, cap=cap)
    assert_close(found, expected)
    inputs = [x for x in (hidden, weight, bias) if x is not None]
    one, two = (torch.autograd.grad((x[0] * by[0] + x[1] * by[1]).sum(), inputs) for x in (expected, found))
    assert_close(two, one)
