"""Model folders with one thing wrong: they work, or are refused in one line; nothing hangs and no memory is taken."""

import base64
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from support import damaged_models as damage
from support.small_model import PROMPTS, model

from rlkit import memory
from rlkit.errors import Diverged, UserError
from rlkit.language import files
from rlkit.language.folders import save
from rlkit.language.model import LanguageModel

CASES = damage.cases(seed=0, count=30)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    model(value_head=True).save(folder)
    return folder


@pytest.fixture(autouse=True)
def a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 2**26)


def used(folder: Path, out: Path) -> str:
    """Load the model, write with it and save it; what it was refused for, or ""."""
    try:
        policy = LanguageModel.load(folder, value_head=True)
        written = policy.generate(PROMPTS, repeats=2, max_tokens=4)
        policy.evaluate(written.flatten())
        policy.decode(written)
        policy.encode(PROMPTS, ["7", "", "12 pears"])
        policy.save(out)
    except (UserError, Diverged) as error:
        assert "\n" not in str(error) and len(str(error)) < 600, str(error)[:2000]
        return str(error)
    return ""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", range(8))
@pytest.mark.slow
def test_a_damaged_folder_works_or_is_one_line(part: int, good: Path, tmp_path: Path) -> None:
    said = {}
    for i, (name, change) in enumerate(CASES[part::8]):
        folder = shutil.copytree(good, tmp_path / str(i))
        change(folder)
        try:
            said[name] = used(folder, tmp_path / "out")
        except Exception as error:
            raise AssertionError(name) from error
        shutil.rmtree(folder)
    assert sum(map(bool, said.values())) > len(said) // 3, "most damages are found"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_key_of_the_configuration_with_each_value(good: Path, tmp_path: Path) -> None:
    keys = tuple(json.loads((good / "config.json").read_text()))
    rope = ("rope_scaling", "head_dim", "layer_types", "mlp_bias", "quantization_config", "use_sliding_window")
    for i, (name, change) in enumerate(damage.every_field((*keys, *rope))):
        folder = shutil.copytree(good, tmp_path / str(i))
        change(folder)
        try:
            used(folder, tmp_path / "out")
        except Exception as error:
            raise AssertionError(name) from error
        shutil.rmtree(folder)


REFUSED = {
    "layers are a text": ("config.json", ("num_hidden_layers",), '"3"', 'num_hidden_layers is "3", not a whole number'),
    "layers are negative": ("config.json", ("num_hidden_layers",), "-1", "num_hidden_layers is -1, not a whole number"),
    "no width": ("config.json", ("hidden_size",), "null", "hidden_size is null, not a whole number from 1 to 16777216"),
    "no context": ("config.json", ("max_position_embeddings",), "null", "max_position_embeddings is null, not a whole"),
    "a million layers": ("config.json", ("num_hidden_layers",), "1000000", "num_hidden_layers is 1000000, not a whole"),
    "ten million tokens": ("config.json", ("vocab_size",), "10000000", r"but config.json means \[10000000, 32\]"),
    "deep": ("config.json", ("use_cache",), damage.DEEP, "not a JSON object"),
    "heads that do not divide": ("config.json", ("num_key_value_heads",), "3", "num_key_value_heads is 3, not a whole"),
    "an odd head": ("config.json", ("head_dim",), "15", "2 heads of size 15 with 2 key-value heads cannot be"),
    "a text for true": ("config.json", ("tie_word_embeddings",), '"false"', "is \"false\", not true or false"),
    "an end that is a fraction": ("generation_config.json", ("eos_token_id",), "1.5", "eos_token_id is 1.5, not a tok"),
    "an end that is a text": ("generation_config.json", ("eos_token_id",), '["a"]', "eos_token_id is a list, not a"),
    "an end out of range": ("generation_config.json", ("eos_token_id",), "300000", "is 300000, not a token id"),
    "an end below 0": ("config.json", ("eos_token_id",), "-2", "eos_token_id is -2, not a token id"),
    "half a character": ("tokenizer_config.json", ("eos_token",), '"\\ud800"', "eos_token is .*, not a text"),
    "an end token that is a number": ("tokenizer_config.json", ("eos_token",), "3", "eos_token is 3, not a text"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_field_is_named(case: str, good: Path, tmp_path: Path) -> None:
    file, keys, value, says = REFUSED[case]
    folder = shutil.copytree(good, tmp_path / "model")
    damage.put(folder / file, keys, value)
    with pytest.raises(UserError, match=says):
        LanguageModel.load(folder)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("model.safetensors: tensor 0 is NaN", "model.embed_tokens.weight holds numbers that are not finite"),
        ("model.safetensors: tensor -1 is one inf", "model.norm.weight holds numbers that are not finite"),
        ("model.safetensors: tensor 0 is int8", "is of type I8, and weights must be of BF16, F16, F32, F64"),
        ("value_head.safetensors: tensor 0 is NaN", "bias holds numbers that are not finite"),
        ("value_head.safetensors holds nothing", r"it holds nothing, and the model's head is bias \[1\], weight"),
        ('weight_map = {"a": "../outside.safetensors"}', "weight_map names '../outside.safetensors'; it must map"),
        ('weight_map = ["a"]', "it must map names of weights to .safetensors files of this folder"),
        ("tokenizer.json is a pipe", "lacks tokenizer.json"),
        ("tokenizer_config.json is a pipe", "tokenizer_config.json: not a file"),
        ("tokenizer.json is larger than any disk", "larger than 64 MB"),
    ],
)
@pytest.mark.timeout(60)
def test_a_wrong_file_is_named(what: str, says: str, good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    dict(CASES)[what](folder)
    with pytest.raises(UserError, match=says):
        LanguageModel.load(folder, value_head=True)


def test_the_most_bytes_of_a_chat_template_are_told(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(" " * (2**19 + 1))
    with pytest.raises(UserError, match=r"chat_template.jinja: larger than 0\.5 MB"):
        LanguageModel.load(folder)


@pytest.mark.parametrize("key", ["chat_template", "unk_token", ""])
def test_a_token_that_the_model_does_not_know_is_refused_where_it_is_used(key: str, good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    core = LanguageModel.load(folder).tokenizer.core
    size = core.get_vocab_size()
    core.add_special_tokens(["<more>"])
    core.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | ({key: "<more>"} if key else {})))
    if key:
        with pytest.raises(
            UserError, match=f"it has token {size}, and config.json a vocabulary of {size}, 0 to {size - 1}"
        ):
            LanguageModel.load(folder)
        return
    tokenizer = LanguageModel.load(folder).tokenizer
    assert len(tokenizer) == size and max(tokenizer.encode(["a <more>"])[0]) < size


def test_a_model_larger_than_the_memory_is_refused_before_it_is_read(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free", lambda: 2**10)
    monkeypatch.setattr(files, "ROOM", 0)  # they have room
    with pytest.raises(UserError, match=r"a model of [\d,]+ parameters needs .* are free: take a smaller one"):
        LanguageModel.load(good)


def test_a_file_of_many_empty_lists_is_refused_before_it_is_read(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    for name, lists, says in (
        ("config.json", 2**21, "larger than 4 MB"),
        ("tokenizer.json", 2**20, "needs 0.1 GB, 0.1 GB are free: restore it"),
    ):
        (folder / name).write_text('{"a": [' + "[]," * lists + "[]]}")
        with pytest.raises(UserError, match=f"{name}:? {says}"):
            LanguageModel.load(folder)
        shutil.copy(good / name, folder)


def test_the_permissions_of_weights_are_those_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        save(tmp_path / "x.safetensors", {"a": torch.zeros(1)})
    finally:
        os.umask(before)
    assert (tmp_path / "x.safetensors").stat().st_mode & 0o777 == 0o600


def test_an_id_that_is_a_long_text_is_no_folder(tmp_path: Path) -> None:
    for name in ("x" * 5000, "a/" * 3000, "~nobody-here/x", "a\0b"):
        with pytest.raises(UserError, match="no such folder") as error:
            LanguageModel.load(name)
        assert len(str(error.value)) < 300


def test_damages_are_the_same_each_time() -> None:
    assert [name for name, _ in damage.cases(0, 30)] == [name for name, _ in CASES] and len(CASES) > 300


def template(**special: dict[str, object]) -> dict[str, object]:
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    first = [{"SpecialToken": {"id": "X", "type_id": 0}}, a]
    return {"type": "TemplateProcessing", "single": first, "pair": [a, b], "special_tokens": special}


TOKENIZERS = {
    "a beginning that is nothing": ("post_processor", template(), "cannot read a text .no entry found for key"),
    "a beginning beyond the model": (
        "post_processor",
        template(X={"id": "X", "ids": [4_000_000_000], "tokens": ["X"]}),
        "it has token 4000000000, and config.json a vocabulary of",
    ),
    "a normalizer that panics": (
        "normalizer",
        {"type": "Precompiled", "precompiled_charsmap": "AAAAAQ=="},
        "not a tokenizer file",
    ),
    "a rule that multiplies": (
        "normalizer",
        {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 2000},
        "tokenizer.json: rules that may make a text more than 1,000 times as long, which no tokenizer needs: restore",
    ),
    "rules that multiply together": (
        "decoder",
        {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"Regex": "a*"}, "content": "aaa"}] * 5},
        "rules that may make a text more than 1,000 times as long",
    ),
    "a table that multiplies": (
        "normalizer",
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(4) + b"a\0" + b"b" * 2000).decode()},
        "rules that may make a text more than 1,000 times as long",
    ),
    "a long rule": (
        "pre_tokenizer",
        {"type": "Split", "pattern": {"Regex": "a" * 20_000}, "behavior": "Isolated", "invert": False},
        "a text of 20,000 characters in its rules",
    ),
    "many rules": ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 2000}, r"4,0\d\d items in"),
    "a long token": (
        "model",
        {"type": "WordLevel", "vocab": {"<|endoftext|>": 0, "a" * 5000: 1}, "unk_token": "<|endoftext|>"},
        "a token of 5,000 characters",
    ),
    "no unknown token": (
        "model",
        {"type": "WordLevel", "vocab": {"<|endoftext|>": 0}, "unk_token": "[UNK]"},
        r"cannot read a text .WordLevel error: Missing \[UNK\] token",
    ),
    "added tokens that are not a list": ("added_tokens", 5, "tokenizer.json"),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_tokenizer_that_fails_is_one_line(case: str, good: Path, tmp_path: Path) -> None:
    key, value, says = TOKENIZERS[case]
    folder = shutil.copytree(good, tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**content, key: value}))
    with pytest.raises(UserError, match=says):
        LanguageModel.load(folder).generate(PROMPTS, max_tokens=2)
