"""What must hold on a GPU: `pytest -m gpu` on a machine that has one. CI runs each of these on a pretended one."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.pretend_cuda import pretended
from support.resuming import REWARD
from support.small_model import PROMPTS as TEXTS
from support.small_model import model as small_model
from tensordict import TensorDict
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from rlkit import loop, progress
from rlkit.buffers import flatten_groups
from rlkit.language import generate as generation
from rlkit.language.decoder import Decoder
from rlkit.language.folders import fresh_config
from rlkit.language.generate import Completions, Prompts, Rule, choose, generate
from rlkit.language.logprob import token_log_probs
from rlkit.language.model import LanguageModel
from rlkit.language.shape import Shape
from rlkit.meter import Meter
from rlkit.progress import Progress
from rlkit.seeding import generator
from rlkit.settings import config
from rlkit.settings.assemble import Parts, assemble

GPU, LARGE = "cuda:0", 151_936  # the vocabulary of Qwen
PROMPTS = [[5, 6, 7], [1], [9, 9, 3, 2, 8, 30, 11], [4, 0, 4, 0], [12, 13]]
REAL = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]


@pytest.fixture(params=["pretended", pytest.param("real", marks=REAL)], autouse=True)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with pretended() if request.param == "pretended" else nullcontext():
        yield request.param


def decoder(vocab: int = 40, width: int = 32, spread: float = 5.0) -> Decoder:
    """A small random model whose next-token distributions are far from uniform."""
    shape = Shape.read(fresh_config("llama", vocab, width, 2, 4, 2, 48, context=256, end=0))
    model = Decoder(shape).initialize(generator(3, "llama"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= spread if parameter.dim() == 2 else 1.0
    return model.requires_grad_(False)


def policy(dtype: torch.dtype = torch.float32, **options: Any) -> LanguageModel:
    made = small_model(**options)
    made.decoder.dtype = made.dtype = dtype
    return made


def rows(written_by: LanguageModel) -> TensorDict:
    """What a policy wrote, with what the learner says of it."""
    rollout = written_by.generate(TEXTS, repeats=4, max_tokens=24)
    return flatten_groups(rollout.update(written_by.record(rollout)))


def gradients(of: LanguageModel, batch: TensorDict) -> tuple[Tensor, Tensor]:
    """The loss of a step, and its gradient, all parameters in one."""
    now = of.evaluate(batch)
    loss = (now["log_prob"].mean() + now["value"].square().mean() + now["entropy"].mean()).float()
    torch.autograd.backward(loss)
    return loss.detach().cpu(), torch.cat(
        [x.grad.flatten().float().cpu() for x in of.parameters() if x.grad is not None]
    )


def assert_same_texts(done: Completions, expected: Completions) -> None:
    assert done.length.tolist() == expected.length.tolist()
    within = torch.arange(expected.tokens.shape[1]) < expected.length[:, None]
    assert torch.equal(done.tokens.cpu()[within], expected.tokens[within])
    assert_close(done.log_prob.cpu()[within], expected.log_prob[within], rtol=1e-4, atol=1e-4)  # other matrix kernels


@pytest.mark.parametrize("repeats", [1, 6])
@pytest.mark.slow
def test_float32_writes_what_the_cpu_writes_with_drops_growth_and_new_graphs(
    repeats: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, rule, captured = 30 if kind == "pretended" else 100, Rule(0.8, False, (0, 3, 17)), []
    expected = generate(decoder(), Prompts(PROMPTS, repeats, rule, generator(0, "draw")), tokens)
    real = generation._capture
    monkeypatch.setattr(generation, "_capture", lambda *words: captured.append(1) or real(*words))
    monkeypatch.setitem(generation.BLOCK, "cuda", 12)
    done = generate(decoder().to(GPU), Prompts(PROMPTS, repeats, rule, generator(0, "draw")), tokens)
    assert_same_texts(done, expected)
    assert len(captured) >= 2


@pytest.mark.slow
def test_bfloat16_is_within_a_tenth_of_a_nat_of_the_learner_and_of_float32() -> None:
    ours = policy(torch.bfloat16, spread=4.0).to(GPU)
    batch = rows(ours)
    gap = (batch["log_prob"] - batch["sampler_log_prob"])[batch["mask"]].abs()
    assert 0 < gap.mean() < 0.1
    exact = policy(spread=4.0)
    with torch.no_grad():
        precise = exact.evaluate(batch.to("cpu"))["log_prob"]
    assert (batch["log_prob"].cpu() - precise)[batch["mask"].cpu()].abs().mean() < 0.1


@pytest.mark.slow
def test_two_texts_of_one_seed_are_one_in_bfloat16() -> None:
    texts = [policy(torch.bfloat16).to(GPU).generate(TEXTS, repeats=2, max_tokens=16) for _ in range(2)]
    assert torch.equal(texts[0]["action"], texts[1]["action"]) and torch.equal(
        texts[0]["log_prob"], texts[1]["log_prob"]
    )


def test_no_token_without_probability_is_drawn_from_a_vocabulary_of_150_000() -> None:
    logits = torch.randn(16, LARGE, generator=generator(0, "draw")) * 4
    possible = torch.rand(16, LARGE, generator=generator(1, "draw")) < 0.5
    logits = logits.masked_fill(~possible, -torch.inf)
    for u in (0.0, 0.3, 0.999, 1 - 2.0**-24):
        draw = torch.full((16,), u)
        token, log_prob = choose(logits.to(GPU), Rule(1.0, False, ()), draw.to(GPU))
        assert possible.gather(1, token.cpu()[:, None]).all() and log_prob.isfinite().all()
        assert_close(log_prob.cpu(), logits.log_softmax(-1).gather(1, token.cpu()[:, None])[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_vocabulary_of_150_000_is_written_and_learned_from() -> None:
    model, rule = decoder(LARGE, 16, 3.0), Rule(1.0, False, (0,))
    expected = generate(model, Prompts(PROMPTS[:2], 2, rule, generator(0, "draw")), 6)
    assert_same_texts(
        generate(decoder(LARGE, 16, 3.0).to(GPU), Prompts(PROMPTS[:2], 2, rule, generator(0, "draw")), 6), expected
    )
    found = []
    for place in ("cpu", GPU):
        hidden = torch.randn(5, 16, generator=generator(0, "hidden")).to(place).requires_grad_()
        weight = model.head.detach().to(place).requires_grad_()
        targets = torch.tensor([0, 7, 130_000, LARGE - 1, 5]).to(place)
        log_prob, entropy = token_log_probs(hidden, weight, targets, 0.9)
        torch.autograd.backward((log_prob * 2 + entropy).sum())
        assert hidden.grad is not None and weight.grad is not None
        found.append([x.detach().cpu() for x in (log_prob, entropy, hidden.grad, weight.grad)])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.slow
def test_a_step_has_the_loss_and_the_gradient_of_the_cpu(dtype: torch.dtype) -> None:
    with torch.no_grad():
        batch = rows(policy(spread=4.0))
    loss, gradient = gradients(policy(spread=4.0, value_head=True), batch)
    theirs, other = gradients(policy(dtype, spread=4.0, value_head=True).to(GPU), batch.to(GPU))
    if dtype == torch.float32:
        assert_close(theirs, loss, rtol=1e-3, atol=1e-4)
        assert_close(other, gradient, rtol=1e-2, atol=1e-4 * float(gradient.abs().max()))
    else:
        assert abs(float(theirs - loss)) < 0.1
        assert torch.cosine_similarity(gradient, other, 0) > 0.98


@pytest.mark.slow
def test_a_checkpoint_brings_everything_back_to_the_last_bit(tmp_path: Path) -> None:
    """And the iteration after it is the same; attention by plain products, for fused kernels add up in any order."""
    words = f"algo=grpo algo.group=4 env=gsm8k env.rows=1 env.max_tokens=6 {REWARD} device={GPU}"
    first, second = (assemble(config.read(words.split())) for _ in range(2))
    with sdpa_kernel(SDPBackend.MATH):
        loop.walk(first.algo, first.env, Meter())
        progress.save(tmp_path, first.algo, first.env, Progress())
        progress.restore(tmp_path, second.algo, second.env)
        assert_equal(learned(first), learned(second))
        for made in (first, second):
            loop.walk(made.algo, made.env, Meter())
        assert_equal(learned(first), learned(second))


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert len(one) > 20 and all(torch.equal(one[name], other[name]) for name in one)


def learned(parts: Parts) -> dict[str, Tensor]:
    """The parameters, and what the optimizer remembers of each; all of them are on the device."""
    algo = parts.algo
    assert isinstance(algo.policy, LanguageModel)
    found: dict[str, Tensor] = dict(algo.policy.named_parameters())
    for number, kept in algo.optimizer.state_dict()["state"].items():
        found |= {f"{number} {name}": x for name, x in kept.items()}
    assert all(x.is_cuda for x in found.values())
    return {name: x.detach().cpu() for name, x in found.items()}
