"""Generation: the cached engine against a loop without a cache, its draws, its stops, its batches."""

import pytest
import torch
from support import small_model
from torch import Tensor
from torch.testing import assert_close

from rlkit.errors import Diverged
from rlkit.language.decoder import Decoder
from rlkit.language.folders import fresh_config
from rlkit.language.generate import Completions, Prompts, Rule, Writing, choose, generate
from rlkit.language.shape import Shape
from rlkit.seeding import generator

VOCAB = 40
PROMPTS = [[5, 6, 7], [1], [9, 9, 3, 2, 8, 30, 11], [4, 0, 4, 0], [12, 13]]
STOPS = (0, 3, 17)


def decoder(kind: str = "llama", kv_heads: int = 2, spread: float = 8.0) -> Decoder:
    """A random model whose next-token distributions are far from uniform."""
    config = fresh_config(kind, VOCAB, 32, 2, 4, kv_heads, 48, context=128, end=0)
    model = Decoder(Shape.read({**config, "tie_word_embeddings": kind != "qwen3"})).initialize(generator(3, kind))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter *= spread
    return model.requires_grad_(False)


def uncached(
    model: Decoder, prompt: list[int], budget: int, rule: Rule, uniform: Tensor | None
) -> list[tuple[int, float]]:
    """Read the whole text again for every token: what generation means."""
    text, written = list(prompt), []
    for time in range(budget):
        logits = model.logits(model(torch.tensor([text]))[:, -1])
        if time == 0:
            logits[:, list(rule.forbidden)] = -torch.inf
        token, log_prob = choose(logits, rule, None if uniform is None else uniform[time, None])
        text.append(int(token))
        written.append((int(token), float(log_prob)))
        if int(token) in rule.stops:
            break
    return written


def assert_equals_uncached(model: Decoder, done: Completions, repeats: int, budget: int, rule: Rule, uniform=None):
    for row in range(len(PROMPTS) * repeats):
        draws = None if uniform is None else uniform[:, row]
        tokens, log_probs = zip(*uncached(model, PROMPTS[row // repeats], budget, rule, draws), strict=True)
        assert done.tokens[row, : done.length[row]].tolist() == list(tokens)
        assert_close(done.log_prob[row, : done.length[row]], torch.tensor(log_probs))
        assert bool(done.truncated[row]) == (tokens[-1] not in rule.stops)


@pytest.mark.parametrize(("kind", "kv_heads"), [("llama", 4), ("llama", 1), ("qwen2", 2), ("qwen3", 2)])
def test_greedy_with_cache_equals_greedy_without(kind, kv_heads):
    model, rule = decoder(kind, kv_heads), Rule(1.0, True, (VOCAB,))
    done = generate(model, Prompts(PROMPTS, 2, rule), 45)  # 45 tokens: more than one block of the cache
    assert done.length.tolist() == [45] * 10
    assert_equals_uncached(model, done, 2, 45, rule)


@pytest.mark.parametrize("rows", [256, 8, 1])
@pytest.mark.parametrize("repeats", [1, 6])
@pytest.mark.slow
def test_sampling_with_drops_and_chunks_equals_sampling_row_by_row_without_cache(rows, repeats):
    model, rule = decoder(spread=5.0), Rule(0.8, False, STOPS)
    done = generate(model, Prompts(PROMPTS, repeats, rule, generator(0, "draw"), rows), 40)
    uniform = torch.rand(40, len(PROMPTS) * repeats, generator=generator(0, "draw"))
    assert len(set(done.length.tolist())) > 2
    assert_equals_uncached(model, done, repeats, 40, rule, uniform)


def test_a_prompt_alone_is_completed_as_in_a_batch():
    model, rule = decoder(), Rule(1.0, True, STOPS)
    together = generate(model, Prompts(PROMPTS, 1, rule), 30)
    for row, prompt in enumerate(PROMPTS):
        alone = generate(model, Prompts([prompt], 1, rule), 30)
        length = int(together.length[row])
        assert alone.tokens[0].tolist() == together.tokens[row, :length].tolist()
        assert_close(alone.log_prob[0], together.log_prob[row, :length])


def test_one_seed_gives_one_text_bitwise_and_another_seed_another():
    model, rule = decoder(spread=4.0), Rule(1.0, False, STOPS)
    first, second, other = (generate(model, Prompts(PROMPTS, 4, rule, generator(s, "draw")), 20) for s in (0, 0, 1))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_prob, second.log_prob)
    assert first.tokens.tolist() != other.tokens.tolist()


def test_the_generator_ends_in_the_same_state_however_long_the_texts_are():
    model, states = decoder(), []
    for stops in [(VOCAB,), tuple(range(VOCAB))]:
        draw = generator(0, "draw")
        done = generate(model, Prompts(PROMPTS, 2, Rule(1.0, False, stops), draw), 20)
        states.append(draw.get_state())
    assert done.length.tolist() == [1] * 10
    assert torch.equal(*states)


def test_sampling_without_a_generator_is_an_error():
    with pytest.raises(ValueError, match="generator"):
        generate(decoder(), Prompts(PROMPTS, 1, Rule(1.0, False, STOPS)), 2)


def test_a_budget_of_one_token():
    done = generate(decoder(), Prompts(PROMPTS, 2, Rule(1.0, True, (VOCAB,))), 1)
    assert done.tokens.shape == (10, 1) and done.truncated.all()


def test_a_forbidden_first_token_gives_way_to_the_best_of_the_rest():
    model = decoder()
    plain = generate(model, Prompts(PROMPTS, 1, Rule(1.0, True, (VOCAB,))), 6)
    first = tuple(set(plain.tokens[:, 0].tolist()))
    rule = Rule(1.0, True, (VOCAB,), first)
    done = generate(model, Prompts(PROMPTS, 1, rule), 6)
    assert not set(done.tokens[:, 0].tolist()) & set(first)
    assert_equals_uncached(model, done, 1, 6, rule)


def test_inverse_cdf_of_a_hand_made_distribution():
    logits = torch.tensor([0.0, 0.2, 0.3, 0.5, 0.0]).log()
    cases = {0.0: 1, 0.19: 1, 0.21: 2, 0.49: 2, 0.51: 3, 1 - 2**-24: 3}
    uniform = torch.tensor(list(cases))
    token, log_prob = choose(logits.repeat(len(cases), 1), Rule(1.0, False, ()), uniform)
    assert token.tolist() == list(cases.values())
    assert_close(log_prob, logits[token])


def test_temperature_sharpens_what_is_sampled_and_recorded():
    logits = torch.tensor([[1.0, 2.0, 4.0]])
    expected = (logits / 0.5).log_softmax(-1)
    grid = (torch.arange(1000) + 0.5) / 1000
    token, log_prob = choose(logits.repeat(1000, 1), Rule(0.5, False, ()), grid)
    assert_close(log_prob, expected[0, token])
    assert_close(token.bincount(minlength=3) / 1000, expected[0].exp(), atol=0.001, rtol=0)  # the grid's spacing
    assert choose(logits, Rule(0.5, True, ()), None)[0].tolist() == [2]


def test_bfloat16_blocks_generate_what_bfloat16_reads():
    model = decoder("qwen2")
    model.dtype = torch.bfloat16
    done = generate(model, Prompts(PROMPTS, 2, Rule(1.0, True, (VOCAB,))), 40)
    for row in range(10):
        text = [*PROMPTS[row // 2], *done.tokens[row].tolist()]
        logits = model.logits(model(torch.tensor([text[:-1]]))[0, -40:])
        log_prob = logits.log_softmax(-1).gather(1, done.tokens[row, :, None])[:, 0]
        assert (log_prob - done.log_prob[row]).abs().mean() < 0.05
    assert next(model.parameters()).dtype == torch.float32


def test_the_largest_draw_is_a_token_that_may_be_written():
    logits = torch.zeros(64, 1000)
    logits[:, 500:] = -torch.inf
    rule, last = Rule(1.0, False, (0,)), torch.full((64,), 1 - 2.0**-24)
    for scale in torch.linspace(0.1, 5, 64):
        logits[:, :500] = torch.randn(64, 500, generator=generator(0, "draw")) * scale
        token, log_prob = choose(logits, rule, last)
        assert (token < 500).all() and log_prob.isfinite().all()


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-30, 1e30, float("inf")])
@pytest.mark.parametrize("greedy", [False, True])
def test_no_temperature_leads_out_of_the_vocabulary(temperature, greedy):
    policy = small_model.model(temperature=temperature)
    try:
        written = policy.generate(small_model.PROMPTS, 2, 5, greedy)
    except Diverged as error:
        assert "not finite: log_prob of what language model writes" in str(error) and temperature < 1e-40
    else:
        assert written["log_prob"].isfinite().all()


def test_weights_that_are_not_finite_stop_what_is_written():
    policy = small_model.model()
    with torch.no_grad():
        policy.decoder.model.norm.weight[0] = torch.nan
    with pytest.raises(Diverged, match="not finite: log_prob of what language model writes"):
        policy.generate(small_model.PROMPTS, 2, 5)


def test_on_a_gpu_rows_are_dropped_down_to_powers_of_two(monkeypatch):
    """Each shape is recorded as a graph, so there are few; what is written is the same."""
    model, rule = decoder(spread=5.0), Rule(0.8, False, STOPS)
    expected = generate(model, Prompts(PROMPTS, 6, rule, generator(0, "draw")), 100)
    sizes = []

    def drop(writing):
        changed = writing._halve()
        sizes.extend([len(writing.row)] if changed else [])
        return changed

    monkeypatch.setattr(Writing, "_drop", drop)
    done = generate(model, Prompts(PROMPTS, 6, rule, generator(0, "draw")), 100)
    assert len(sizes) > 1 and all(size & (size - 1) == 0 for size in sizes)
    assert done.length.tolist() == expected.length.tolist()
    within = torch.arange(expected.tokens.shape[1]) < expected.length[:, None]
    assert torch.equal(done.tokens[within], expected.tokens[within])
