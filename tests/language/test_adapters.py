"""Low-rank adapters: their arithmetic and gradients, and the reference without them."""

import copy
from pathlib import Path

import pytest
import torch
from support.adapted import TOKENS, adapted, logits, move
from support.small_model import PROMPTS, model
from torch import Tensor
from torch.testing import assert_close

from rlkit.errors import UserError
from rlkit.language import adapters
from rlkit.language.adapters import ALL, ATTENTION
from rlkit.language.linear import Adapter, Linear
from rlkit.language.model import LanguageModel
from rlkit.seeding import generator

# Arithmetic


@pytest.mark.parametrize("bias", [True, False])
def test_value_and_gradient_are_those_of_the_sum_of_two_matrices(bias: bool) -> None:
    """y = (W + s·B·A) x + b, written out with one matrix and differentiated by torch, in float64."""
    torch.manual_seed(0)
    linear = Linear(5, 7, bias).double()
    linear.requires_grad_(False)
    linear.adapter = Adapter(torch.randn(3, 5).double(), torch.randn(7, 3).double(), 0.75)
    x = torch.randn(2, 4, 5).double().requires_grad_()
    w, b = linear.weight, linear.bias if bias else 0.0
    down, up, y = (t.detach().clone().requires_grad_() for t in (linear.adapter.down, linear.adapter.up, x))
    ours, plain = linear(x), y @ (w + 0.75 * up @ down).T + b
    assert_close(ours, plain, rtol=0, atol=1e-12)
    weigh = torch.randn(2, 4, 7).double()
    (ours * weigh).sum().backward()
    (plain * weigh).sum().backward()
    for found, wanted in ((linear.adapter.down, down), (linear.adapter.up, up), (x, y)):
        assert found.grad is not None and wanted.grad is not None
        assert_close(found.grad, wanted.grad, rtol=0, atol=1e-12)
    assert linear.weight.grad is None
    assert_close(linear.merged(), w + 0.75 * up @ down, rtol=0, atol=1e-12)


def test_a_frozen_weight_in_bfloat16_is_multiplied_in_the_precision_of_the_input() -> None:
    torch.manual_seed(0)
    linear = Linear(6, 5)
    linear.requires_grad_(False)
    linear.weight.data = linear.weight.data.bfloat16()
    x = torch.randn(3, 6, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    ours, plain = linear(x), y @ linear.weight.float().T + linear.bias
    assert_close(ours, plain)
    ours.square().sum().backward()
    plain.square().sum().backward()
    assert_close(x.grad, y.grad)


def test_new_adapters_change_nothing_and_freeze_the_rest() -> None:
    plain, policy = model(value_head=True), adapted(moved=False, value_head=True)
    assert torch.equal(logits(policy, TOKENS), logits(plain, TOKENS))
    learning = {name for name, p in policy.named_parameters() if p.requires_grad}
    assert {name for name in learning if ".adapter." not in name} == {"value_head.weight", "value_head.bias"}
    assert len(learning) == 2 + 2 * 2 * len(ALL)  # down and up of two layers


def test_the_gradient_of_a_text_is_that_of_a_model_with_written_out_matrices() -> None:
    """Through the whole decoder: ∂/∂up of the log-probability = s · (∂/∂W) · downᵀ, and so for down."""
    policy = adapted().double()
    policy.decoder.dtype = torch.float64
    plain = copy.deepcopy(policy)
    plain.decoder.requires_grad_(False)
    for _, linear in list(plain.decoder.adapted()):
        linear.weight.copy_(linear.merged())
        linear.weight.requires_grad_()
        linear.adapter = None
    batch = policy.encode(PROMPTS, [" 7", " sells 12", " pears"])
    values = [x.evaluate(batch, entropy=False)["log_prob"] for x in (policy, plain)]
    assert_close(*values, rtol=0, atol=1e-9)
    for value in values:
        value.sum().backward()
    whole = dict(plain.decoder.named_modules())
    for name, linear in policy.decoder.adapted():
        adapter, full = linear.adapter, whole[name].weight.grad  # type: ignore[union-attr]
        assert adapter is not None and isinstance(full, Tensor)
        assert_close(adapter.up.grad, adapter.scale * full @ adapter.down.T, rtol=1e-9, atol=1e-9)
        assert_close(adapter.down.grad, adapter.scale * adapter.up.T @ full, rtol=1e-9, atol=1e-9)


def test_what_is_written_is_what_the_merged_model_writes(tmp_path: Path) -> None:
    policy = adapted()
    policy.save(tmp_path)
    merged = LanguageModel.load(tmp_path)
    assert_close(logits(merged, TOKENS), logits(policy, TOKENS), rtol=1e-4, atol=1e-4)
    written = [x.generate(PROMPTS, 2, 12, generator=generator(0, "w")) for x in (policy, merged)]
    assert torch.equal(written[0]["action"], written[1]["action"])
    assert [p.requires_grad for p in policy.parameters()] == [p.requires_grad for p in adapted().parameters()]
    seen = policy.evaluate(written[0].flatten(0, 1))["log_prob"].view_as(written[0]["log_prob"])
    assert_close(written[0]["log_prob"], seen, rtol=1e-3, atol=1e-4)


# The reference


def test_the_reference_is_the_base_without_adapters_and_copies_nothing() -> None:
    policy, plain = adapted(moved=False), model()
    reference = policy.reference()
    move(policy)
    assert torch.equal(logits(reference, TOKENS), logits(plain, TOKENS))
    assert not torch.equal(logits(policy, TOKENS), logits(plain, TOKENS))
    own = {id(p) for p in policy.parameters()}
    assert all(id(p) in own for p in reference.parameters())


def test_the_reference_of_a_policy_that_began_with_adapters_is_what_it_was() -> None:
    policy = adapted()
    before, reference = logits(policy, TOKENS), policy.reference()
    for _, linear in policy.decoder.adapted():
        assert linear.adapter is not None
        torch.nn.init.zeros_(linear.adapter.up)
    assert torch.equal(logits(reference, TOKENS), before)
    copied = {id(p) for p in reference.parameters()} - {id(p) for p in policy.parameters()}
    assert len(copied) == 2 * 2 * len(ALL) and not any(p.requires_grad for p in reference.parameters())


def test_the_layers_that_words_mean() -> None:
    assert adapters.targets("attention") == ATTENTION and adapters.targets("all") == ALL
    assert adapters.targets("down_proj, q_proj") == ("q_proj", "down_proj")
    with pytest.raises(UserError, match=r"policy.lora_targets=q_proj,lm_head: there is no 'lm_head'; give attention"):
        adapters.targets("q_proj,lm_head")
