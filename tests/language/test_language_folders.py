"""Language models as folders: what is saved and loaded, and which folders and texts are refused."""

import copy
import json
import os
import subprocess
import sys

import pytest
import torch
from support.small_model import PROMPTS, TOKENIZER, model
from torch.testing import assert_close

from rlkit import ranks
from rlkit.api import UserError
from rlkit.language import folders
from rlkit.language.chat import ChatTemplate
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.language.reward_model import RewardModel
from rlkit.language.tokenizer import Tokenizer
from rlkit.prompts import Turn, data

# Folders


def test_a_saved_policy_comes_back_the_same(tmp_path):
    policy = model(value_head=True, temperature=0.9)
    with torch.no_grad():
        policy.value_head.bias.fill_(2.0)
    policy.save(tmp_path)
    again = LanguageNetwork(model=str(tmp_path), temperature=0.9).build(value_head=True)
    assert_close(again.state_dict(), policy.state_dict(), rtol=0, atol=0)
    one, two = (p.generate(PROMPTS, repeats=2, max_tokens=9) for p in (policy, again))
    assert torch.equal(one["action"], two["action"]) and torch.equal(one["log_prob"], two["log_prob"])
    assert {f.name for f in tmp_path.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "value_head.safetensors",
    }  # fmt: skip
    plain = LanguageModel.load(tmp_path)
    assert plain.value_head is None


def test_random_weights_come_without_the_value_head_of_the_folder(tmp_path):
    policy = model(value_head=True)
    with torch.no_grad():
        policy.value_head.weight.fill_(2.0)
    policy.save(tmp_path)
    fresh = LanguageNetwork(model=str(tmp_path), fresh=True).build(value_head=True)
    assert not any(x.any() for x in fresh.value_head.parameters())


def test_bfloat16_files_are_half_as_large_and_load_as_float32(tmp_path):
    policy = model()
    policy.save(tmp_path / "full")
    policy.save(tmp_path / "half", torch.bfloat16)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half")]
    assert 0.5 < sizes[1] / sizes[0] < 0.6
    for name, weight in LanguageModel.load(tmp_path / "half").decoder.named_parameters():
        assert torch.equal(weight, policy.decoder.get_parameter(name).bfloat16().float())


@pytest.mark.parametrize("tied", [True, False])
def test_weights_that_config_json_has_no_place_for_are_named(tmp_path, capsys, monkeypatch, tied):
    """transformers says so, too: a config.json of fewer layers, or without its biases, is another model."""
    model(tied=tied).save(tmp_path)
    path, file = tmp_path / "config.json", tmp_path / "model.safetensors"
    weights = folders.read_tensors(file)
    weights |= {folders.HEAD: weights.get(folders.HEAD, weights[folders.EMBEDDING]).clone()}
    folders.save(file, {**weights, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})
    LanguageModel.load(tmp_path)
    assert capsys.readouterr().err == ""
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 1}))
    LanguageModel.load(tmp_path)
    said = "the model that config.json describes has no model.layers.1.input_layernorm.weight (weights left out: 9)\n"
    assert capsys.readouterr().err.endswith(said)
    monkeypatch.setattr(ranks, "first", lambda: False)  # one of several ranks says it
    LanguageModel.load(tmp_path)
    assert capsys.readouterr().err == ""


def test_a_new_tiny_model_has_the_shape_that_is_shipped():
    policy = LanguageModel.fresh(TOKENIZER)
    count = sum(p.numel() for p in policy.parameters())
    assert count == 96 * len(TOKENIZER) + 3 * (4 * 96 * 96 + 3 * 96 * 256 + 2 * 96) + 96


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_transformers_loads_a_new_model(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    policy = model(kv_heads=1, kind=kind)
    policy.save(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokens = torch.tensor(TOKENIZER.encode(["Ann has 12 apples and 3 pears."]))
    with torch.no_grad():
        assert_close(policy.decoder.logits(policy.decoder(tokens)), theirs(tokens).logits)
    assert getattr(theirs.config, "sliding_window", None) is None


@pytest.mark.parametrize("added", [True, False], ids=["an added token", "a piece of the vocabulary"])
def test_an_end_token_that_is_not_marked_as_special_is_not_in_a_text(added, tmp_path):
    """As the tokenizers of some ChatML models are: transformers marks what tokenizer_config.json names."""
    transformers = pytest.importorskip("transformers")
    model().save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"] = [{**token, "special": False} for token in content["added_tokens"]] if added else []
    path.write_text(json.dumps(content))
    ours, theirs = LanguageModel.load(tmp_path).tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "#### 12<|endoftext|>"
    (ids,) = ours.encode([text])
    assert ids == theirs.encode(text) and ids[-1] == ours.eos_id
    assert ours.decode([ids]) == [theirs.decode(ids, skip_special_tokens=True)] == ["#### 12"]
    assert ours.encode([data(text)])[0][-1] != ours.eos_id  # in a question, it is a text


OWN = {"lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": False}


@pytest.mark.parametrize("older", [False, True], ids=["added_tokens_decoder", "added_tokens.json"])
def test_tokens_that_only_another_file_lists_are_read_as_tokens(older, tmp_path):
    transformers = pytest.importorskip("transformers")
    model().save(tmp_path)
    first, file = len(TOKENIZER), "added_tokens.json" if older else "tokenizer_config.json"
    listed = {"<|im_end|>": first + 1, "<tool>": first, "<far>": first + 2}
    content = {str(i): {**OWN, "content": text, "special": text == "<|im_end|>"} for text, i in listed.items()}
    settings = {} if older else json.loads((tmp_path / file).read_text()) | {"added_tokens_decoder": content}
    (tmp_path / file).write_text(json.dumps(listed if older else settings))
    text, theirs = "Ann <tool>12<|im_end|>", transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path, first + 2)
    (ids,) = ours.encode([text])
    assert ids == theirs.encode(text) and {first, first + 1} < {*ids}
    assert ours.decode([ids]) == [theirs.decode(ids, skip_special_tokens=True)]
    assert len(ours) == first + 2  # the model has no row for <far>
    ours.save(tmp_path)
    assert Tokenizer.load(tmp_path, first + 2).encode([text]) == [ids]


@pytest.mark.parametrize(
    ("settings", "older"),
    [
        ({"bos_token": "<|x|>"}, None),
        ({"image_token": "<|x|>"}, None),
        ({"additional_special_tokens": ["<|x|>", "apples"]}, None),
        ({"extra_special_tokens": {"video_token": "<|x|>"}}, None),
        (None, {"eos_token": "<|endoftext|>", "pad_token": {"content": "<|x|>", "normalized": False}}),
        ({"eos_token": "apples"}, {"eos_token": "<|endoftext|>", "additional_special_tokens": ["<|x|>"]}),
        ({"added_tokens_decoder": {}}, {"bos_token": "<|x|>"}),
    ],
)
def test_special_tokens_are_those_of_transformers(settings, older, tmp_path):
    transformers = pytest.importorskip("transformers")
    model().save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    plain = {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(plain if settings is None else json.loads(path.read_text()) | settings))
    if older is not None:
        (tmp_path / "special_tokens_map.json").write_text(json.dumps(older))
    text, theirs = "Ann apples<|x|>12<|endoftext|>", transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(Tokenizer.load(tmp_path, len(TOKENIZER))) == len(TOKENIZER)  # the model has no row for a new one
    for _ in range(2):  # the second time as it was saved
        ours = Tokenizer.load(tmp_path, len(TOKENIZER) + 3)
        (ids,) = ours.encode([text])
        assert ids == theirs.encode(text) == transformers.AutoTokenizer.from_pretrained(tmp_path).encode(text)
        assert ours.decode([ids]) == [theirs.decode(ids, skip_special_tokens=True)]
        assert (ours.eos_id, ours.pad_id) == (0, theirs.pad_token_id or 0)
        ours.save(tmp_path)


def test_a_tokenizer_that_draws_its_merges_is_refused(tmp_path):
    model().save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["dropout"] = 0.1
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"tokenizer\.json: with a dropout, a text is other tokens each time"):
        LanguageModel.load(tmp_path)


def test_special_tokens_that_are_split_are_refused(tmp_path):
    model().save(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"split_special_tokens": True}))
    with pytest.raises(UserError, match=r"split_special_tokens is true, .*: write false there"):
        LanguageModel.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", {"additional_special_tokens": "<a>"}),
        ("tokenizer_config.json", {"extra_special_tokens": ["<a>", 3]}),
        ("tokenizer_config.json", {"image_token": "a" * 1001}),
        ("special_tokens_map.json", {"eos_token": 3}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "<a>"}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"300": {"content": ""}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"300": {"content": "<a>", "special": 3}}}),
        ("added_tokens.json", {"<a>": "300"}),
        ("added_tokens.json", {"\ud800": 300}),
    ],
)
def test_a_damaged_list_of_tokens_is_refused(file, content, tmp_path):
    model().save(tmp_path)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"{file}: .*restore it from where the model came from"):
        Tokenizer.load(tmp_path, 400)


def test_a_named_end_token_that_the_tokenizer_does_not_have_is_refused(tmp_path):
    model().save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    with pytest.raises(UserError, match=r"eos_token is '<.im_end.>', which tokenizer.json does not have: name a token"):
        LanguageModel.load(tmp_path)


def test_a_model_that_is_saved_over_an_older_one_keeps_nothing_of_it(tmp_path):
    older = RewardModel.on(model(), writes=False)
    older.tokenizer = copy.copy(TOKENIZER)
    older.tokenizer.template = ChatTemplate("{{ messages }}", "x.jinja")
    older.options = {"enable_thinking": False}
    older.save(tmp_path)
    model(value_head=True).save(tmp_path)
    assert not (tmp_path / "reward_head.safetensors").exists() and not LanguageModel.load(tmp_path).chats
    (tmp_path / "added_tokens.json").write_text(json.dumps({"apples": len(TOKENIZER)}))
    plain = model()
    plain.save(tmp_path)
    assert LanguageModel.load(tmp_path).tokenizer.encode(["apples"]) == TOKENIZER.encode(["apples"])
    assert not LanguageModel.load(tmp_path, value_head=True).value_head.weight.any()
    assert not (tmp_path / "value_head.safetensors").exists()
    RewardModel.on(plain, writes=False).save(tmp_path)
    assert RewardModel.load(tmp_path).options == {}


def test_a_reward_model_is_asked_without_names_that_its_template_does_not_have(tmp_path):
    older = RewardModel.on(model(), writes=False)  # as rlkit 0.5 saved it
    older.tokenizer = copy.copy(TOKENIZER)
    older.tokenizer.template = ChatTemplate("{{ messages[0].content }}{{ mood }}", "x.jinja")
    older.options = {"enable_thinking": False, "mood": "!"}
    older.save(tmp_path)
    found = RewardModel.load(tmp_path)
    assert found.chat([(Turn("user", data("a")),)], found.options) == ["a!"]


# Mistakes


def test_texts_beyond_the_context_are_refused():
    policy = model()
    long = " apples" * 100
    with pytest.raises(UserError, match="a prompt of 100 tokens and 29 more exceed the model's context of 128"):
        policy.generate([long], max_tokens=29)
    policy.generate([long], max_tokens=28, greedy=True)
    with pytest.raises(UserError, match="a text has 129 tokens, the model's context is 128"):
        policy.encode([long], [" apples" * 28])
    policy.encode([long], [" apples" * 27])


@pytest.mark.parametrize("prompts", [[""], ["Bob", ""], []])
def test_an_empty_prompt_is_refused(prompts):
    with pytest.raises(UserError, match="a prompt is empty"):
        model().generate(prompts)


def test_a_folder_that_is_no_checkpoint_is_refused_with_what_it_lacks(tmp_path):
    with pytest.raises(UserError, match=r"not a checkpoint folder: it lacks config\.json, tokenizer\.json, model\.saf"):
        LanguageModel.load(tmp_path)
    model().save(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json: not a JSON object"):
        LanguageModel.load(tmp_path)
    model().save(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer file"):
        LanguageModel.load(tmp_path)
    with pytest.raises(
        UserError, match=r"no such folder; give tiny, smollm2, a checkpoint folder, a \.gguf file, or a hub id"
    ):
        LanguageModel.load("./nowhere/at/all")


def test_a_hub_id_without_the_extra_or_without_a_network_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install huggingface_hub"):
        folders.locate("org/name")


@pytest.mark.slow
def test_offline_a_hub_id_says_what_to_do():
    pytest.importorskip("huggingface_hub")
    code = """
from rlkit.api import UserError
from rlkit.language import folders as checkpoint
try:
    checkpoint.locate("org/name-that-is-not-here")
except UserError as error:
    print(error)
"""
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True).stdout
    assert "could not be loaded from the hub" in out and "or give a local folder" in out and out.count("\n") == 1
