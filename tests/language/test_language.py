"""The language model as a policy: its layout, its masks, its log-probabilities, its folders, its errors."""

import json

import pytest
import torch
from support.small_model import PROMPTS, TEXTS, TOKENIZER, model
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit.language.logprob import token_log_probs
from rlkit.language.model import LanguageModel
from rlkit.language.tokenizer import END, Tokenizer
from rlkit.seeding import generator

# Tokenizer


def test_any_text_comes_back_and_digits_stand_alone():
    for text in ["Zoë pays €3.50 — 10%\t\n\n 007", "apples", " ", "<<2*6=12>>12"]:
        assert TOKENIZER.decode(TOKENIZER.encode([text])) == [text]
    pieces = [TOKENIZER.core.id_to_token(i) for i in TOKENIZER.encode(["has 1234 apples"])[0]]
    assert [p.replace("Ġ", " ") for p in pieces] == ["has", " 1", "2", "3", "4", " apples"]


def test_transformers_reads_the_saved_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers")
    model().save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "unseen Ω 99"]:
        assert theirs(text)["input_ids"] == TOKENIZER.encode([text])[0]
    assert theirs.eos_token_id == theirs.pad_token_id == TOKENIZER.eos_id


def test_special_tokens_come_from_the_folder(tmp_path):
    core = TOKENIZER.core
    core.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": END}, "pad_token": "a"}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    loaded = Tokenizer.load(tmp_path, len(TOKENIZER))
    assert (loaded.eos_id, loaded.pad_id) == (core.token_to_id(END), core.token_to_id("a"))
    assert loaded.stop_ids == tuple(sorted({7, 9, loaded.eos_id}))


# Layout


def test_encode_lays_out_prompt_and_completion_with_the_end_token():
    policy = model()
    batch = policy.encode(["Ann has", "Bob"], [" 7", " sells 12"])
    first, second = TOKENIZER.encode(["Ann has 7", "Bob sells 12"])
    assert (len(first), len(second)) == (3, 4)
    end = TOKENIZER.eos_id
    assert batch["observation"].tolist() == [[*first, end], second]
    assert batch["action"].tolist() == [[*first[1:], end, end], [*second[1:], end]]
    assert batch["mask"].tolist() == [[False, True, True, False], [True, True, True, True]]
    assert policy.decode(batch) == [" 7", " sells 12"]


def test_generate_lays_out_what_encode_would():
    policy = model()
    policy.tokenizer = stopping()
    rollout = policy.generate(PROMPTS, repeats=3, max_tokens=6)
    assert rollout.batch_size == (3, 3)
    ids = TOKENIZER.encode(PROMPTS)
    for p, g in [(p, g) for p in range(3) for g in range(3)]:
        row, start = rollout[p, g], len(ids[p])
        written = row["action"][row["mask"]].tolist()
        assert row["mask"].nonzero()[:, 0].tolist() == list(range(start - 1, start - 1 + len(written)))
        assert row["observation"][:start].tolist() == ids[p]
        assert row["observation"][start : start + len(written) - 1].tolist() == written[:-1]
        assert bool(row["truncated"]) == (written[-1] not in policy.tokenizer.stop_ids)
        assert not set(written[:-1]) & set(policy.tokenizer.stop_ids)
        assert (row["log_prob"][~row["mask"]] == 0).all() and (row["log_prob"][row["mask"]] < 0).all()
    assert rollout["truncated"].any() and not rollout["truncated"].all()


def stopping() -> Tokenizer:
    """The end token alone is rare in a random model: stop at every seventh token, too."""
    return Tokenizer(TOKENIZER.core, TOKENIZER.eos_id, TOKENIZER.pad_id, range(0, 300, 7))


def test_masks_count_tokens_and_never_look_at_ids():
    """The end token is also the padding and stands in the prompt: it is masked only where it was written."""
    policy = model()
    assert TOKENIZER.eos_id == TOKENIZER.pad_id
    batch = policy.encode([f"Bob{END}", f"Bob{END}{END}"], [" sells", ""])
    assert batch["mask"].tolist() == [[False, True, True], [False, False, True]]
    policy.tokenizer = Tokenizer(TOKENIZER.core, TOKENIZER.eos_id, TOKENIZER.pad_id, range(len(TOKENIZER)))
    rollout = policy.generate([f"Bob{END}", f"Bob{END}{END}"], max_tokens=5)
    assert rollout["mask"].squeeze(1).tolist() == [[False, True, False], [False, False, True]]
    assert not rollout["truncated"].any()


# Log-probabilities


def test_generation_records_the_log_probabilities_that_evaluate_returns():
    policy = model(temperature=0.7)
    policy.tokenizer = stopping()
    rollout = policy.generate(PROMPTS, repeats=4, max_tokens=40)
    assert_close(policy.evaluate(rollout.flatten())["log_prob"], rollout.flatten()["log_prob"])


def test_evaluate_equals_the_plain_softmax_with_its_gradient():
    policy = model(temperature=1.3)
    batch = policy.encode(PROMPTS, [" 5", " sells 12 apples", " #### 7"])
    mask, target = batch["mask"], batch["action"][..., None]
    logits = policy.decoder.logits(policy.decoder(batch["observation"])) / 1.3
    log_policy = logits.log_softmax(-1)
    expected = {
        "log_prob": log_policy.gather(-1, target)[..., 0] * mask,
        "entropy": -(log_policy.exp() * log_policy).sum(-1) * mask,
    }
    found = policy.evaluate(batch)
    gradients = []
    for out in (expected, found):
        policy.zero_grad()
        (out["log_prob"].sum() + 0.5 * (out["entropy"] ** 2).sum()).backward()
        gradients.append([p.grad for p in policy.decoder.parameters()])
    assert_close(found, expected)
    assert_close(gradients[1], gradients[0], rtol=1.3e-6, atol=1e-4)  # sums of gradients as large as 100


def test_evaluate_depends_neither_on_order_nor_padding_nor_rows_without_signal():
    policy = model()
    batch = policy.encode(PROMPTS, [" 5", " sells 12 apples", " #### 7"])
    full = policy.evaluate(batch)
    order = torch.tensor([2, 0, 1])
    assert_close(policy.evaluate(batch[order])["log_prob"], full["log_prob"][order])
    longer = TensorDict({k: torch.nn.functional.pad(v, (0, 9)) for k, v in batch.items()}, batch_size=3)
    assert_close(policy.evaluate(longer)["log_prob"][:, :-9], full["log_prob"])
    silent = batch.clone()
    silent["mask"][1] = False
    assert_close(policy.evaluate(silent)["log_prob"][[0, 2]], full["log_prob"][[0, 2]])
    silent["mask"][:] = False
    assert (policy.evaluate(silent)["log_prob"] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("chunk", [1, 4, 11, 100])
def test_chunked_log_probs_equal_the_plain_ones_in_value_and_gradient(dtype, chunk):
    draw = generator(0, "chunk")
    hidden = torch.randn(11, 8, generator=draw, dtype=dtype).requires_grad_()
    weight = torch.randn(30, 8, generator=draw, dtype=dtype).requires_grad_()
    target = torch.randint(0, 30, (11,), generator=draw)
    by_token, by_row = torch.randn(2, 11, generator=draw, dtype=dtype)
    log_policy = (hidden @ weight.T / 0.6).log_softmax(-1)
    plain = log_policy.gather(1, target[:, None])[:, 0], -(log_policy.exp() * log_policy).sum(-1)
    chunked = token_log_probs(hidden, weight, target, 0.6, chunk)
    assert_close(chunked, plain)
    for with_entropy in (1.0, 0.0):
        one, two = (
            torch.autograd.grad((lp * by_token + h * by_row * with_entropy).sum(), (hidden, weight), retain_graph=True)
            for lp, h in (plain, chunked)
        )
        assert_close(two, one)
    alone, nothing = token_log_probs(hidden, weight, target, 0.6, chunk, entropy=False)
    assert_close(alone, plain[0])
    assert_close(
        torch.autograd.grad((alone * by_token).sum(), (hidden, weight)),
        torch.autograd.grad((plain[0] * by_token).sum(), (hidden, weight)),
    )
    assert not nothing.any()


@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("entropy", [None, False, True])  # not asked for, without gradient, with one
def test_a_frozen_head_gives_the_same_gradient_to_the_hidden_states(entropy, cap):
    draw = generator(3, "frozen")
    hidden = torch.randn(11, 8, generator=draw, dtype=torch.float64).requires_grad_()
    weight, bias = torch.randn(30, 8, generator=draw).double(), torch.randn(30, generator=draw).double()
    target = torch.randint(0, 30, (11,), generator=draw)
    by_token, by_row = torch.randn(2, 11, generator=draw, dtype=torch.float64)
    found = []
    for head in (weight, weight.clone().requires_grad_()):
        wanted = entropy is not None
        log_prob, spread = token_log_probs(hidden, head, target, 0.6, 4, entropy=wanted, bias=bias, cap=cap)
        loss = (log_prob * by_token).sum() + ((spread * by_row).sum() if entropy else 0.0)
        found.append((log_prob.detach(), spread.detach(), *torch.autograd.grad(loss, hidden)))
    assert_close(found[0], found[1])


@pytest.mark.parametrize("chunk", [4, 100])
def test_bfloat16_is_multiplied_with_float32_results_in_value_and_gradient(chunk):
    """The products are those of operands that were rounded to bfloat16, and nothing else is rounded."""
    draw = generator(2, "rounded")
    hidden = torch.randn(11, 64, generator=draw).bfloat16().requires_grad_()
    weight = (torch.randn(300, 64, generator=draw) / 8).requires_grad_()  # what is trained stays float32
    target, by_token = torch.randint(0, 300, (11,), generator=draw), torch.randn(11, generator=draw)
    wide = [x.detach().bfloat16().double().requires_grad_() for x in (hidden, weight)]
    log_policy = (wide[0] @ wide[1].T / 0.6).log_softmax(-1)
    plain = log_policy.gather(1, target[:, None])[:, 0]
    found = token_log_probs(hidden, weight, target, 0.6, chunk, entropy=False)[0]
    assert found.dtype == torch.float32
    assert_close(found, plain.float())
    grads = torch.autograd.grad((found * by_token).sum(), (hidden, weight))
    assert [x.dtype for x in grads] == [torch.bfloat16, torch.float32]
    # ∂/∂z is rounded, too, where it is multiplied: that is the only other difference.
    rounded = torch.autograd.grad((plain * by_token).sum(), [log_policy])[0]
    rounded = ((rounded - log_policy.exp() * rounded.sum(-1, keepdim=True)) / 0.6).float().bfloat16().double()
    assert_close(grads[0], (rounded @ wide[1]).bfloat16())
    assert_close(grads[1], (rounded.T @ wide[0]).float(), rtol=1e-5, atol=1e-5)


def test_chunked_log_probs_pass_gradcheck():
    draw = generator(1, "gradcheck")
    hidden = torch.randn(5, 4, generator=draw, dtype=torch.float64).requires_grad_()
    weight = torch.randn(7, 4, generator=draw, dtype=torch.float64).requires_grad_()
    target = torch.randint(0, 7, (5,), generator=draw)
    assert torch.autograd.gradcheck(lambda h, w: token_log_probs(h, w, target, 1.5, 2), (hidden, weight))


def test_nothing_of_the_size_of_the_logits_is_kept_for_the_backward_pass():
    hidden, weight = torch.randn(64, 4, requires_grad=True), torch.randn(500, 4, requires_grad=True)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        token_log_probs(hidden, weight, torch.zeros(64, dtype=torch.long), chunk=8)
    assert max(sizes) == weight.numel() < 64 * 500


def test_the_values_are_of_the_state_before_each_token_and_zero_after_the_last():
    policy = model(value_head=True)
    assert not policy.value_head.weight.any() and not policy.value_head.bias.any()
    with torch.no_grad():
        policy.value_head.weight.normal_(generator=generator(0, "head"))
    policy.tokenizer = stopping()
    rollout = policy.generate(PROMPTS, repeats=2, max_tokens=10)
    recorded, mask = policy.record(rollout), rollout["mask"]
    hidden = policy.decoder(rollout["observation"].flatten(0, 1))
    value = policy.value_head(hidden)[..., 0].view(mask.shape) * mask
    assert_close(recorded["value"], value.detach())
    assert_close(policy.evaluate(rollout.flatten())["value"].view(mask.shape), value)
    last = mask & ~torch.nn.functional.pad(mask[..., 1:], (0, 1))
    assert (recorded["next_value"][last] == 0).all()
    inner = mask[..., :-1] & mask[..., 1:]
    assert_close(recorded["next_value"][..., :-1][inner], value[..., 1:][inner].detach())
    assert not recorded["next_value"][~mask].any()
    assert not recorded["value"].requires_grad
    assert model().record(rollout) == {}


# Acting


def test_two_policies_of_one_seed_write_the_same_bitwise():
    first, second = (model(seed=4).generate(PROMPTS, repeats=3, max_tokens=20) for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first.keys())
    again = model(seed=4)
    again.generate(PROMPTS, repeats=3, max_tokens=20)
    later = again.generate(PROMPTS, repeats=3, max_tokens=20)
    assert again.decode(later) != again.decode(first)


def test_a_given_generator_leaves_the_policys_own_alone():
    policy = model()
    before = policy.generator.get_state()
    policy.generate(PROMPTS, max_tokens=5, generator=generator(0, "other"))
    policy.generate(PROMPTS, max_tokens=5, greedy=True)
    assert torch.equal(policy.generator.get_state(), before)


def test_the_first_token_of_a_forbidden_string_is_not_written_first():
    policy = model(tied=False)
    marker = TOKENIZER.encode(["#### 5"])[0][0]
    with torch.no_grad():  # after this prompt the model wants to say "####"
        hidden = policy.decoder(torch.tensor(TOKENIZER.encode(["Bob"])))[0, -1]
        policy.decoder.lm_head.weight[marker] = 100 * hidden
    plain = policy.generate(["Bob"], max_tokens=3, greedy=True)
    forced = policy.generate(["Bob"], max_tokens=3, greedy=True, forbid_first=["#### 5"])
    assert plain["action"][plain["mask"]][0] == marker
    logits = policy.decoder.logits(hidden)
    logits[marker] = -torch.inf
    assert forced["action"][forced["mask"]][0] == logits.argmax()


def test_attention_only_training_moves_attention_projections_only():
    policy = LanguageModel(model().decoder, TOKENIZER, value_head=True, trainable="attention")
    free = {name for name, p in policy.named_parameters() if p.requires_grad}
    kinds = {name.split(".")[-2] for name in free}
    assert kinds == {"q_proj", "k_proj", "v_proj", "o_proj", "value_head"}
    policy.evaluate(policy.encode(["Bob"], [" sells"]))["log_prob"].sum().backward()
    assert {n for n, p in policy.decoder.named_parameters() if p.grad is not None} == {
        name.removeprefix("decoder.") for name in free if name.startswith("decoder.")
    }
