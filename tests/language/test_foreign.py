"""Architectures that transformers computes: the same numbers, gradients and texts as its own."""

import re
from pathlib import Path

import pytest
import torch
from support.small_model import ANSWERS, LONG, PROMPTS, TOKENIZER
from torch import Tensor
from torch.testing import assert_close

from rlkit.errors import UserError
from rlkit.language import causal, folders
from rlkit.language.folders import TINY
from rlkit.language.foreign import Foreign
from rlkit.language.foreign_folders import read_foreign
from rlkit.language.generate import Prompts, Rule, choose
from rlkit.language.lockstep import Lockstep
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.language.reward_model import RewardModel
from rlkit.seeding import generator

transformers = pytest.importorskip("transformers")
from support.foreign_folders import KINDS, write  # noqa: E402  # they import transformers

PROJECTIONS = {
    "gpt2": ("transformer.h.*.attn", "c_attn c_proj"),
    "phi": ("model.layers.*.self_attn", "q_proj k_proj v_proj dense"),
    "phi3": ("model.layers.*.self_attn", "qkv_proj o_proj"),
    "opt": ("model.decoder.layers.*.self_attn", "q_proj k_proj v_proj out_proj"),
    "lfm2": ("model.layers.*.self_attn", "q_proj k_proj v_proj out_proj"),
}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp(request.param)
    write(made, request.param)
    return made


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    write(tmp_path / "gpt2", "gpt2")
    return tmp_path / "gpt2"


def theirs(folder: Path) -> torch.nn.Module:
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def logits(model: LanguageModel, tokens: Tensor) -> Tensor:
    assert isinstance(model.decoder, Foreign)
    return model.decoder.logits(model.decoder.hidden(tokens))


def test_the_context_is_what_the_architecture_calls_it(tmp_path: Path) -> None:
    """MPT's bias of positions has `max_seq_len` places, and a text beyond them ends in one line."""
    sizes = {"vocab_size": len(TOKENIZER), "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 24}
    config = transformers.AutoConfig.for_model("mpt", **sizes, eos_token_id=TOKENIZER.eos_id)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    policy = LanguageModel.load(tmp_path)
    assert policy.decoder.context == 24
    with pytest.raises(UserError, match="exceed the model's context of 24"):
        policy.generate(["Bob"], max_tokens=24)
    assert policy.generate(["Bob"], max_tokens=20)["mask"].sum() <= 20


@pytest.mark.slow
def test_many_prompts_of_very_different_lengths_are_written(tmp_path: Path) -> None:
    """Each is far longer than the one before it; a recursion would end after some hundreds."""
    write(tmp_path, "gpt2", n_positions=2400)
    policy = LanguageModel.load(tmp_path, rows=4000)
    ids = [[3] * size for size in range(1, 2200, 2)]
    policy.engine.sync(policy.decoder)
    done = policy.engine.write(Prompts(ids, 1, Rule(1.0, True, (TOKENIZER.eos_id,)), rows=4000), 1)
    assert done.tokens.shape == (1100, 1)


def test_log_probabilities_and_gradients_are_those_of_transformers(folder: Path) -> None:
    peer, policy = theirs(folder), LanguageModel.load(folder, temperature=1.3)
    batch = policy.encode(LONG, ANSWERS)
    mask, target = batch["mask"], batch["action"][..., None]
    log_policy = (peer(input_ids=batch["observation"]).logits.float() / 1.3).log_softmax(-1)
    expected = {
        "log_prob": log_policy.gather(-1, target)[..., 0] * mask,
        "entropy": -(log_policy.exp() * log_policy).sum(-1) * mask,
    }
    found = policy.evaluate(batch)
    assert_close(found, expected)
    for out in (expected, found):
        (out["log_prob"].sum() + 0.5 * (out["entropy"] ** 2).sum()).backward()
    assert isinstance(policy.decoder, Foreign)
    ours = dict(policy.decoder.whole.named_parameters())
    assert ours.keys() == dict(peer.named_parameters()).keys()
    for name, parameter in peer.named_parameters():
        assert_close(ours[name].grad, parameter.grad, rtol=1e-5, atol=1e-4, msg=lambda x, n=name: f"{n}: {x}")
    assert any(p.grad is not None and p.grad.abs().max() > 1 for p in peer.parameters())


def test_greedy_texts_are_those_of_transformers(folder: Path) -> None:
    peer, policy = theirs(folder), LanguageModel.load(folder)
    written = policy.generate(LONG, max_tokens=24, greedy=True)
    stops = list(policy.tokenizer.stop_ids)
    for i, ids in enumerate(policy.prompt_ids(LONG)):
        out = peer.generate(
            torch.tensor([ids]), max_new_tokens=24, do_sample=False, eos_token_id=stops, pad_token_id=stops[0]
        )
        assert written["action"][i, 0][written["mask"][i, 0]].tolist() == out[0, len(ids) :].tolist()


def test_what_is_drawn_has_the_probability_that_the_learner_says(folder: Path) -> None:
    policy = LanguageModel.load(folder, temperature=0.8)
    rollout = policy.generate(LONG, repeats=4, max_tokens=24).flatten()
    assert policy.engine.exact
    assert_close(policy.evaluate(rollout)["log_prob"].exp(), rollout["log_prob"].exp())  # 1 where the mask is False
    assert_close(policy.evaluate(rollout)["log_prob"], rollout["log_prob"], rtol=1e-5, atol=1e-5)


def test_a_saved_model_is_one_that_transformers_and_rlkit_load(folder: Path, tmp_path: Path) -> None:
    policy, tokens = LanguageModel.load(folder), torch.arange(40).view(2, 20)
    policy.save(tmp_path)
    with torch.no_grad():
        expected = theirs(folder)(input_ids=tokens).logits
        assert_close(theirs(tmp_path)(input_ids=tokens).logits, expected, rtol=0, atol=0)
        assert_close(logits(LanguageModel.load(tmp_path), tokens), expected)
    published, saved = (folders.sizes_in(place / folders.WHOLE) for place in (folder, tmp_path))
    assert saved == published, "the names are those that vLLM and transformers 4 know, also for experts"
    policy.save(tmp_path, torch.bfloat16)
    for name, weight in LanguageModel.load(tmp_path).decoder.named_parameters():
        assert torch.equal(weight, policy.decoder.get_parameter(name).bfloat16().float())


def test_parts_bound_what_is_alive_and_change_no_gradient(folder: Path) -> None:
    whole, parted = LanguageModel.load(folder), LanguageModel.load(folder)
    batch = whole.encode(LONG, ANSWERS)
    parted.micro_steps = 60
    assert isinstance(parted.decoder, Foreign)
    sizes = []
    parted.decoder.whole.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    parted.decoder.recompute(True)
    for policy in (whole, parted):
        policy.evaluate(batch)["log_prob"].sum().backward()
    assert max(sizes) <= 60 and len(sizes) > 2
    for one, other in zip(whole.parameters(), parted.parameters(), strict=True):
        assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-4)


def test_rows_without_signal_change_nothing(gpt2: Path) -> None:
    policy = LanguageModel.load(gpt2)
    batch = policy.encode(PROMPTS, ANSWERS[:3])
    full = policy.evaluate(batch)["log_prob"]
    batch["mask"][1] = False
    assert_close(policy.evaluate(batch)["log_prob"][[0, 2]], full[[0, 2]])
    batch["mask"][:] = False
    assert not policy.evaluate(batch)["log_prob"].any()


def test_the_activations_of_one_part_are_kept(gpt2: Path) -> None:
    policy = LanguageModel.load(gpt2)
    batch = policy.encode(PROMPTS * 4, ANSWERS[:3] * 4)
    kept = []
    for policy.micro_steps in (10**6, 60):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, s=sizes: s.append(x.numel()) or x, lambda x: x):
            policy.evaluate(batch)
        kept.append(sum(sizes))
    assert kept[1] < 0.5 * kept[0]


@pytest.mark.slow
def test_the_native_decoder_is_an_oracle() -> None:
    """On the same weights: of values, gradients and greedy texts."""
    native = LanguageModel.load("tiny", temperature=1.2)
    foreign = LanguageModel(read_foreign(TINY), native.tokenizer, temperature=1.2)
    batch = native.encode(LONG, ANSWERS)
    found, expected = foreign.evaluate(batch), native.evaluate(batch)
    assert_close(found, expected, rtol=1e-5, atol=1e-5)
    gradients = []
    for policy, out in ((foreign, found), (native, expected)):
        out["log_prob"].sum().backward()
        named = policy.decoder.named_parameters()
        gradients.append({name.removeprefix("whole."): x.grad for name, x in named})
    assert_close(*gradients, rtol=1e-4, atol=1e-4)
    one, other = (policy.generate(LONG, max_tokens=24, greedy=True) for policy in (foreign, native))
    assert torch.equal(one["action"], other["action"]) and torch.equal(one["mask"], other["mask"])


def oracle(policy: LanguageModel, ids: list[int], budget: int, rule: Rule, uniform: Tensor) -> list[int]:
    """One row token by token, without a cache."""
    row: list[int] = []
    while len(row) < budget and not (row and row[-1] in rule.stops):
        last = logits(policy, torch.tensor([ids + row]))[:, -1]
        if not row:
            last[:, list(rule.forbidden)] = -torch.inf
        row.append(int(choose(last, rule, uniform[len(row)][None])[0]))
    return row


@torch.no_grad()
def test_draws_depend_on_the_generator_alone(gpt2: Path) -> None:
    policy = LanguageModel.load(gpt2)
    ids = policy.prompt_ids(LONG)
    rule = Rule(0.9, False, tuple(range(0, 300, 6)), forbidden=tuple(range(0, 250)))
    engine = Lockstep()
    engine.sync(policy.decoder)
    uniform = torch.rand(6, len(ids) * 3, generator=generator(5, "draws"))
    expected = [oracle(policy, ids[i // 3], 6, rule, uniform[:, i]) for i in range(len(ids) * 3)]
    for rows in (1, 6, 256):  # with few tokens, a long prompt is written apart from short ones
        done = engine.write(Prompts(ids, 3, rule, generator(5, "draws"), rows), 6)
        assert [row[:n].tolist() for row, n in zip(done.tokens, done.length, strict=True)] == expected
        assert done.truncated.tolist() == [row[-1] not in rule.stops for row in expected]
    assert len({len(row) for row in expected}) > 1, "no row stopped early"


def test_stop_strings_end_a_text(gpt2: Path) -> None:
    policy = LanguageModel.load(gpt2)
    free = policy.generate(LONG, repeats=8, max_tokens=30, generator=generator(1, "x"))
    texts = policy.decode(free)
    stop = max("aeiou", key=lambda x: sum(x in text for text in texts))
    ended = policy.generate(LONG, repeats=8, max_tokens=30, generator=generator(1, "x"), stop=[stop])
    lengths, full = ended["mask"].sum(-1).flatten().tolist(), free["mask"].sum(-1).flatten().tolist()
    for text, before, n, most in zip(policy.decode(ended), texts, lengths, full, strict=True):
        assert before.startswith(text) and (stop in text) == (stop in before)
        assert stop not in text[:-1] or n <= most
    assert ended["truncated"].sum() < free["truncated"].sum() and sum(lengths) < sum(full)


def test_dropout_is_off_in_training_too(tmp_path: Path) -> None:
    write(tmp_path, "gpt2", attn_pdrop=0.5, resid_pdrop=0.5, embd_pdrop=0.5)
    policy = LanguageModel.load(tmp_path)
    rollout = policy.generate(PROMPTS, repeats=4, max_tokens=12).flatten()
    policy.train()
    for checkpointing in (False, True):
        policy.decoder.recompute(checkpointing)
        assert_close(policy.evaluate(rollout)["log_prob"], rollout["log_prob"])
    policy.save(tmp_path / "out")
    assert theirs(tmp_path / "out").config.attn_pdrop == 0.5


def test_a_reference_stays_and_a_reward_model_reads(gpt2: Path) -> None:
    policy = LanguageModel.load(gpt2)
    batch, reference = policy.encode(PROMPTS, ANSWERS[:3]), policy.reference()
    before = reference.evaluate(batch)["log_prob"]
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.1
    assert torch.equal(reference.evaluate(batch)["log_prob"], before)
    assert not torch.allclose(policy.evaluate(batch)["log_prob"], before)
    judge = RewardModel.on(LanguageModel.load(gpt2), writes=True)
    judge.value_head.weight.data.normal_(generator=generator(0, "head"))
    ids = policy.prompt_ids([PROMPTS[0]])[0] + TOKENIZER.encode([" 5"])[0] + [TOKENIZER.eos_id]
    with torch.no_grad():
        hidden = theirs(gpt2).transformer(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
        assert_close(judge.judge(PROMPTS[:1], [" 5"]), judge.value_head(hidden))
    assert judge.generate(PROMPTS, 2, 6).shape[:2] == (3, 2)


def test_bfloat16_is_told_by_the_learner(gpt2: Path) -> None:
    policy = LanguageModel.load(gpt2, dtype="bfloat16")
    rollout = policy.generate(PROMPTS, repeats=2, max_tokens=12)
    assert not policy.engine.exact and all(p.dtype == torch.float32 for p in policy.parameters())
    known = policy.record(rollout)
    assert torch.equal(known["sampler_log_prob"], rollout["log_prob"])
    gap = (known["log_prob"] - rollout["log_prob"]).abs().max()
    exact = LanguageModel.load(gpt2).evaluate(rollout.flatten())["log_prob"]
    assert gap < 0.1 and 1e-5 < (known["log_prob"].flatten(0, 1) - exact).abs().max() < 0.1


def test_fresh_weights_are_those_of_the_seed_and_no_global_generator_moves(gpt2: Path) -> None:
    before = torch.get_rng_state()
    one, same, other = (LanguageNetwork(model=str(gpt2), fresh=True).build(seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], same[key]) for key in one)
    key = "decoder.whole.transformer.wte.weight"
    assert not torch.equal(one[key], other[key])
    assert one[key].std() == pytest.approx(0.02, rel=0.05)  # GPT-2's
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"lora": 2}, "policy.lora"),
        ({"adapter": "somewhere"}, "policy.adapter"),
    ],
)
def test_what_only_native_models_can_do_is_refused(gpt2: Path, keys: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=rf"^{said} is for models that are native \(llama, .*gpt2 is computed"):
        LanguageNetwork(model=str(gpt2), **keys).build()  # type: ignore[arg-type]


def test_attention_alone_learns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = LanguageModel.load(folder, trainable="attention")
    names = {name.removeprefix("decoder.whole.") for name, p in policy.named_parameters() if p.requires_grad}
    kind = policy.decoder.config["model_type"]
    layers, parts = PROJECTIONS.get(kind, ("model.layers.*.self_attn", "q_proj k_proj v_proj o_proj"))
    owners = {re.sub(r"\.\d+\.", ".*.", name.rpartition(".")[0]) for name in names}
    assert owners == {f"{layers}.{part}" for part in parts.split()}
    monkeypatch.setattr(causal, "ATTENTION", {"mixer"})
    with pytest.raises(UserError, match="this model has no known weights of attention; give all"):
        LanguageModel.load(folder, trainable="attention")


@pytest.mark.parametrize(
    ("name", "is_in"),
    [
        ("layers.0.self_attn.q_proj.weight", True),
        ("layers.0.mlp.up_proj.weight", False),
        ("layers.0.self_attn.q_norm.weight", False),
        ("layer.0.attention.output.LayerNorm.weight", False),
    ],
)
def test_norms_inside_attention_are_none_of_its_projections(name: str, is_in: bool, tmp_path: Path) -> None:
    write(tmp_path, "gpt2")
    assert read_foreign(tmp_path).in_attention(name) == is_in
