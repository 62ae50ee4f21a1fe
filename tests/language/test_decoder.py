"""The decoder against transformers, in both directions, and its rotary frequencies and weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from rlkit.api import UserError
from rlkit.language import folders
from rlkit.language.decoder import Decoder, rotate
from rlkit.language.shape import Shape, rotary_frequencies
from rlkit.language.tokenizer import train_tokenizer
from rlkit.seeding import generator

SIZES = {
    "vocab_size": 90,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = [
    ("Llama", {}),
    ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 4}),
    ("Llama", {"head_dim": 20, "rope_parameters": LLAMA3}),
    ("Qwen2", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}}),
    ("Qwen2", {"rms_norm_eps": 1e-5}),
    ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    ("Qwen3", {"head_dim": 8, "attention_bias": True}),
    ("Mistral", {"sliding_window": None, "attention_bias": True}),
    ("Mistral", {"sliding_window": None}),
    ("Mistral", {"sliding_window": 256}),  # as long as its context
    ("Mistral", {"sliding_window": None, "head_dim": 20, "tie_word_embeddings": True}),
]
TOKENS = torch.randint(0, 90, (3, 120), generator=generator(0, "tokens"))


def peer(family: str, options: dict):
    """A transformers model whose every weight is random, biases and norms too."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **options})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    draw = generator(1, family)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if "norm" in name else 0.0
            parameter.copy_(center + 0.2 * torch.randn(parameter.shape, generator=draw))
    return model


def ours(folder: Path) -> Decoder:
    return folders.read_decoder(folder)


@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_logits_equal_transformers_on_a_checkpoint_it_saved(tmp_path, family, options):
    model = peer(family, options)
    model.save_pretrained(tmp_path)
    decoder = ours(tmp_path)
    with torch.no_grad():
        assert_close(decoder.logits(decoder(TOKENS)), model(TOKENS).logits)


@pytest.mark.parametrize(("family", "options"), FAMILIES)
def test_transformers_loads_what_we_save(tmp_path, family, options):
    transformers = pytest.importorskip("transformers")
    peer(family, options).save_pretrained(tmp_path / "theirs")
    decoder = ours(tmp_path / "theirs")
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter += 0.1
    tokenizer = train_tokenizer(["one two"], 257)
    folders.write(tmp_path / "ours", decoder, tokenizer, torch.float32)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with torch.no_grad():
        assert_close(decoder.logits(decoder(TOKENS)), model.eval()(TOKENS).logits)


def test_gradients_equal_transformers(tmp_path):
    model = peer("Qwen3", {"tie_word_embeddings": True})
    model.save_pretrained(tmp_path)
    decoder = ours(tmp_path)
    target = TOKENS.roll(-1, 1)
    for logits in (decoder.logits(decoder(TOKENS)), model(TOKENS).logits):
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
    theirs = dict(model.named_parameters())
    for name, parameter in decoder.named_parameters():
        assert_close(parameter.grad, theirs[name].grad)


def test_both_generations_of_rope_settings_mean_the_same():
    base = {"model_type": "llama", **SIZES}
    nested = {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    old = Shape.read({**base, "rope_theta": 500_000.0, "rope_scaling": nested})
    new = Shape.read({**base, "rope_parameters": LLAMA3})
    assert old.rope == new.rope
    plain = Shape.read({**base, "rope_theta": 500_000.0, "rope_scaling": None})
    assert plain.rope == {"rope_type": "default", "rope_theta": 500_000.0}


def test_rope_scaling_that_is_added_to_rope_parameters_replaces_them(tmp_path):
    peer("Llama", {}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in config
    nested = {**LLAMA3, "rope_theta": 1_000_000.0, "original_max_position_embeddings": 32}
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_scaling": nested}))
    model = pytest.importorskip("transformers").AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    decoder = ours(tmp_path)
    with torch.no_grad():
        assert_close(decoder.logits(decoder(TOKENS)), model.eval()(TOKENS).logits, rtol=1e-4, atol=1e-4)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}  # as Qwen's cards say
    with pytest.raises(UserError, match="rope_type is 'yarn'"):
        Shape.read({**config, "rope_scaling": yarn})


def test_an_original_context_beside_the_rope_settings_replaces_theirs(tmp_path):
    model = peer("Llama", {"rope_parameters": {**LLAMA3}, "original_max_position_embeddings": 16})
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for inside in (64, None):  # the settings may have another one, or none
        config["rope_parameters"]["original_max_position_embeddings"] = inside
        config["rope_parameters"] = {key: x for key, x in config["rope_parameters"].items() if x is not None}
        (tmp_path / "config.json").write_text(json.dumps(config))
        decoder = ours(tmp_path)
        with torch.no_grad():
            assert_close(decoder.logits(decoder(TOKENS)), model(TOKENS).logits)


def test_llama3_scaling_keeps_fast_frequencies_and_divides_slow_ones():
    shape = Shape.read({"model_type": "llama", **SIZES, "head_dim": 64, "rope_parameters": LLAMA3})
    plain = Shape.read({"model_type": "llama", **SIZES, "head_dim": 64, "rope_theta": 500_000.0})
    scaled, base = rotary_frequencies(shape), rotary_frequencies(plain)
    assert scaled[0] == base[0] == 1.0
    assert_close(scaled[-1], base[-1] / 8)


def test_rotation_of_a_quarter_turn():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)  # pairs (1, 3) and (2, 4)
    cos, sin = torch.tensor([0.0, 1.0, 0.0, 1.0]).view(1, 1, 1, 4), torch.tensor([-1.0, 0.0, 1.0, 0.0]).view(1, 1, 1, 4)
    assert rotate(x, cos, sin).flatten().tolist() == [-3.0, 2.0, 1.0, 4.0]


def test_a_later_token_changes_nothing_before_it(tmp_path):
    peer("Llama", {}).save_pretrained(tmp_path)
    decoder = ours(tmp_path)
    changed = TOKENS.clone()
    changed[:, 60:] = 7
    assert_close(decoder(TOKENS)[:, :60], decoder(changed)[:, :60])


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_parameters(tmp_path):
    peer("Qwen2", {}).save_pretrained(tmp_path)
    decoder = ours(tmp_path)
    exact = decoder.logits(decoder(TOKENS))
    decoder.dtype = torch.bfloat16
    hidden = decoder(TOKENS)
    logits = decoder.logits(hidden)
    assert hidden.dtype == torch.bfloat16 and logits.dtype == torch.float32
    assert (logits - exact).norm() / exact.norm() < 0.03  # rounding to 8 bits through two layers
    logits.sum().backward()
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in decoder.parameters())


def test_initial_weights_are_a_pure_function_of_the_seed():
    shape = Shape.read({"model_type": "llama", **SIZES})
    first, second, other = (Decoder(shape).initialize(generator(s, "w")).state_dict() for s in (0, 0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
    assert_close(first["lm_head.weight"].std(), torch.tensor(0.02), rtol=0.05, atol=0)


def test_sharded_weights_are_read(tmp_path):
    model = peer("Llama", {})
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    assert not (tmp_path / "model.safetensors").exists()
    with torch.no_grad():
        decoder = ours(checkpoint_with_tokenizer(tmp_path))
        assert_close(decoder.logits(decoder(TOKENS)), model(TOKENS).logits)


def test_a_head_that_is_not_tied_although_its_configuration_says_so_is_refused(tmp_path):
    model = peer("Llama", {"tie_word_embeddings": True})
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    head = weights["model.embed_tokens.weight"].clone()
    save_file({**weights, "lm_head.weight": head}, tmp_path / "model.safetensors", {"format": "pt"})
    with torch.no_grad():
        assert_close(ours(tmp_path).logits(ours(tmp_path)(TOKENS)), model(TOKENS).logits)
    for wrong in (head.flip(0), head[:-1]):
        save_file({**weights, "lm_head.weight": wrong.clone()}, tmp_path / "model.safetensors", {"format": "pt"})
        with pytest.raises(UserError, match=r"_embeddings is true, and lm_head\.weight is not the embedding"):
            ours(tmp_path)


def test_a_model_saved_over_parts_of_an_older_one_is_read(tmp_path):
    peer("Llama", {}).save_pretrained(tmp_path, max_shard_size="30KB")
    decoder = ours(tmp_path)
    with torch.no_grad():
        decoder.model.norm.weight += 1
    folders.write(tmp_path, decoder, train_tokenizer(["one two"], 257), torch.float32)
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert_close(ours(tmp_path).model.norm.weight, decoder.model.norm.weight, rtol=0, atol=0)


def test_of_a_weight_in_two_files_the_last_is_read_as_in_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    peer("Llama", {}).save_pretrained(tmp_path, max_shard_size="30KB")
    first, *_, last = sorted(tmp_path.glob("model-*.safetensors"))
    for file, other in ((first, last), (last, first)):
        name, weight = next(iter(load_file(other).items()))
        save_file({**load_file(file), name: weight + 1}, file, {"format": "pt"})
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        assert_close(ours(tmp_path).logits(ours(tmp_path)(TOKENS)), theirs(TOKENS).logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, r"partial_rotary_factor is 0\.5"),
        ({"type": "linear", "factor": 2.0}, "rope_type is 'linear'"),
    ],
)
def test_other_positions_are_refused_by_what_is_other(rope, said):
    config = {"model_type": "llama", **SIZES, "rope_scaling": rope}
    with pytest.raises(UserError, match=f"{said}, and default and llama3 on whole heads only are supported"):
        Shape.read(config)


def checkpoint_with_tokenizer(folder: Path) -> Path:
    train_tokenizer(["one two"], 257).save(folder)
    return folders.locate(str(folder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "native are llama, qwen2, qwen3, mistral"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"hidden_act": "gelu"}, "not supported"),
        ({"use_sliding_window": True}, "not supported"),
        ({"model_type": "mistral", "sliding_window": 8}, "not supported"),
        ({"model_type": "mistral", "sliding_window": "8"}, "not supported"),
        ({"model_type": "mistral", "max_position_embeddings": 4097}, "not supported"),  # has 4096, as in transformers
        ({"dual_chunk_attention_config": {"chunk_size": 64}}, "dual_chunk_attention_config says"),
        ({"auto_map": {"AutoModel": "own.Own"}}, "auto_map says"),
        ({"is_causal": False}, "is_causal says"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
    ],
)
def test_a_configuration_that_is_not_native_is_refused(change, message):
    config = {"model_type": "llama", **SIZES, **change}
    with pytest.raises(UserError, match=message):
        Shape.read({key: value for key, value in config.items() if value is not None})


def test_weights_that_do_not_fit_are_refused(tmp_path):
    peer("Llama", {}).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({name: t for name, t in weights.items() if name != "model.norm.weight"}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"1 weights are missing, such as model\.norm\.weight"):
        ours(tmp_path)
    save_file({**weights, "model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.norm\.weight is \[3\]"):
        ours(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a readable safetensors file"):
        ours(tmp_path)


def test_the_config_is_written_back_as_it_came(tmp_path):
    peer("Qwen3", {}).save_pretrained(tmp_path / "theirs")
    decoder = ours(tmp_path / "theirs")
    folders.write(tmp_path / "ours", decoder, train_tokenizer(["one two"], 257), torch.bfloat16)
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "ours"))
    assert after == {**before, "dtype": "bfloat16"}
