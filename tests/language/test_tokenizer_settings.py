"""What the other files of a folder say about its tokenizer.json, compared with transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.small_model import TOKENIZER
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Core

from rlkit.api import UserError
from rlkit.language.model import LanguageModel
from rlkit.language.tokenizer import Tokenizer, cleaned
from rlkit.prompts import Turn, data, joined

transformers = pytest.importorskip("transformers")
from support.oracles import reads_rightly  # noqa: E402  # asks for the version of transformers

VOCABULARY = 400
FLAGS = {"content": "<|x|>", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False}
TYPED = {**FLAGS, "__type": "AddedToken"}
SPACED = "is n't , is ' it ' you 've 12 . 5 ? !"


def written(folder: Path, core: Core, settings: dict[str, Any], older: dict[str, Any] | None = None) -> Path:
    """A folder with this tokenizer and what the other files say about it."""
    files = {"tokenizer.json": json.loads(core.to_str()), "tokenizer_config.json": settings}
    files["config.json"] = {"model_type": "llama", "vocab_size": VOCABULARY}
    files |= {"special_tokens_map.json": older} if older else {}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("settings", "older"),
    [
        ({}, {"mask_token": FLAGS}),
        ({}, {"pad_token": {**FLAGS, "normalized": True}}),
        ({}, {"extra_special_tokens": [FLAGS]}),
        ({"mask_token": TYPED}, None),
        ({"extra_special_tokens": [TYPED]}, None),
        ({"model_specific_special_tokens": {"image_token": "<|x|>"}}, None),
        ({"extra_special_tokens": {"image_token": TYPED}}, None),
    ],
)
def test_a_token_that_only_these_files_have_takes_the_space_beside_it_as_they_say(
    settings: dict[str, Any], older: dict[str, Any] | None, tmp_path: Path
) -> None:
    plain = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    written(tmp_path, TOKENIZER.core, plain | settings, older)
    ours, theirs = Tokenizer.load(tmp_path, VOCABULARY), transformers.AutoTokenizer.from_pretrained(tmp_path)
    (ids,) = ours.encode(["Ann  <|x|>  has <|x|>"])
    assert ids == theirs.encode("Ann  <|x|>  has <|x|>")
    assert ours.decode([ids]) == [theirs.decode(ids, skip_special_tokens=True)]
    ours.save(tmp_path)
    assert ids == transformers.AutoTokenizer.from_pretrained(tmp_path).encode("Ann  <|x|>  has <|x|>")
    assert Tokenizer.load(tmp_path, VOCABULARY).encode(["Ann  <|x|>  has <|x|>"]) == [ids]


def words(kind: str) -> Core:
    """A tokenizer that is not BPE."""
    letters = [*".,?!'", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    if kind == "pieces":
        pieces = ["[UNK]", "</s>", *letters, *(f"##{letter}" for letter in letters)]
        core = Core(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
        core.pre_tokenizer, core.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(cleanup=False)
    else:
        core = Core(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), *((x, -2.0) for x in ["▁", *letters])], 0, False))
        core.pre_tokenizer, core.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    core.add_special_tokens(["</s>"])
    return core


@reads_rightly
@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.parametrize("kind", ["pieces", "unigram", "bpe"])
def test_spaces_before_punctuation_go_where_the_file_says_so(kind: str, cleans: bool, tmp_path: Path) -> None:
    """transformers 4 wrote true into every file. BPE's texts have their spaces in any case."""
    core, end = (TOKENIZER.core, "<|endoftext|>") if kind == "bpe" else (words(kind), "</s>")
    written(tmp_path, core, {"eos_token": end, "clean_up_tokenization_spaces": cleans})
    ours, theirs = Tokenizer.load(tmp_path, VOCABULARY), transformers.AutoTokenizer.from_pretrained(tmp_path)
    (ids,) = ours.encode([SPACED])
    (text,) = ours.decode([ids])
    assert kind == "bpe" or text == theirs.decode(ids, skip_special_tokens=True)
    assert (text == cleaned(text)) == (cleans and kind != "bpe")


def llama(kind: str) -> Core:
    """A tokenizer as Llama 2's, which puts a space before each text, also behind special tokens if it is older."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdehnt[INST]/", "▁a"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    core = Core(models.BPE(vocabulary, [("▁", "a")], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if kind == "older":
        core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        core.pre_tokenizer = pre_tokenizers.Metaspace("▁", kind, split=False)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    core.decoder = decoders.Sequence(parts)
    core.add_special_tokens([AddedToken(token, normalized=False) for token in pieces[:3]])
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return core


@pytest.mark.parametrize("kind", ["older", "first", "always", "never"])
@pytest.mark.parametrize("named", ["LlamaTokenizer", "LlamaTokenizerFast", "GPT2Tokenizer", None])
def test_transformers_reads_what_is_saved_as_it_was_trained(kind: str, named: str | None, tmp_path: Path) -> None:
    """transformers 5 builds Llama 2's tokenizer anew, with rules of its own, unless the class reads the file."""
    settings: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "legacy": False}
    written(tmp_path, llama(kind), settings | ({"tokenizer_class": named} if named else {}))
    ours = Tokenizer.load(tmp_path, VOCABULARY)
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a hat", "[INST] a </s>a</s> the", " a", "<s>[INST]"):
        (ids,) = ours.encode([text])
        assert ids == theirs.encode(text, add_special_tokens=False)
        assert ours.decode([ids]) == [theirs.decode(ids, skip_special_tokens=True)]
    assert (theirs.eos_token, theirs.bos_token) == ("</s>", "<s>")


@pytest.mark.parametrize("strips", ["none", "right", "both"])
@pytest.mark.parametrize("kind", ["older", "first", "always", "never"])
def test_an_answer_between_special_tokens_is_what_stands_there_in_the_whole_text(
    kind: str, strips: str, tmp_path: Path
) -> None:
    """An older tokenizer of Llama's writes a space there, too: Phi-3 has learned <|assistant|> and then "▁a".

    The tokens of Phi-3 take white space to the right of them, those of Phi-4 at both sides.
    """
    core, flags = llama(kind), {"rstrip": strips != "none", "lstrip": strips == "both", "normalized": False}
    core.add_special_tokens([AddedToken(token, **flags) for token in ("<|assistant|>", "<|end|>")])
    template = "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>' }}{% endfor %}"
    template += "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    written(tmp_path, core, {"eos_token": "<|end|>", "chat_template": template})
    ours = Tokenizer.load(tmp_path, VOCABULARY)
    policy = LanguageModel.fresh(ours, width=32, layers=1, heads=2, context=128)
    asked, texts = (Turn("user", data("the </s>")),), [data(x) for x in ("a hat", " a", "\n a", "a \n", "", "</s>a")]
    prompts = policy.chat([asked] * len(texts), {})
    for text, prompt, answer in zip(texts, prompts, policy.completion_ids(texts, prompts), strict=True):
        whole = joined([prompt, text, "<|end|>"])
        assert ours.encode([whole]) == [policy.prompt_ids([prompt])[0] + answer]
        if "</s>" not in text:
            plain = "<|user|>\nthe <|end|><|assistant|>\n"
            (before, *_), ids = policy.prompt_ids([plain]), ours.core.encode(f"{plain}{text}<|end|>").ids
            assert ids[len(before) :] == answer


def test_an_answer_that_makes_up_another_token_with_the_end_of_its_prompt_is_read_alone() -> None:
    """covid and 19 are covid19, and a token of whole words is none before a letter: the prompt's ids stay."""
    core = llama("older")
    core.add_tokens([AddedToken(token, normalized=False) for token in ("then", "thence")])
    core.add_tokens([AddedToken("yes", single_word=True, normalized=False)])
    ours = Tokenizer(core, 2, 2)
    asked = ["a then", "a then", "a yes", "a yes", "the"]
    ids = ours.encode_after(["ce a", "a", "the", " the", "ce a"], asked)
    alone = ours.encode_after(["ce a", "the"])
    assert [ids[0], ids[2], ids[4]] == [*alone, alone[0]]
    assert ids[1] == ours.encode(["thena"])[0][1:]
    assert ids[3] == ours.encode(["yes the"])[0][1:]


def test_a_prompt_that_is_no_text_is_named() -> None:
    policy = LanguageModel.fresh(TOKENIZER, width=16, layers=1, heads=2, context=32)
    with pytest.raises(UserError, match="None is not a text"):
        policy.encode([None], ["a"])  # type: ignore[list-item]


def test_the_end_token_that_only_a_class_named_is_in_the_file_that_is_saved(tmp_path: Path) -> None:
    """As in GPT-2's folder, whose tokenizer_config.json has a length alone."""
    written(tmp_path, TOKENIZER.core, {"model_max_length": 1024})
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": TOKENIZER.eos_id}))
    Tokenizer.load(tmp_path, VOCABULARY).save(tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).eos_token == "<|endoftext|>"


@pytest.mark.parametrize("named", ["GPT2Tokenizer", None])
def test_a_template_with_a_token_that_only_a_class_names_is_refused(named: str | None, tmp_path: Path) -> None:
    """transformers knows the end token of a GPT2Tokenizer; here the template would leave it out without a word."""
    settings: dict[str, Any] = {"chat_template": "{{ messages[0].content }}{{ eos_token }}"}
    written(tmp_path, TOKENIZER.core, settings | ({"tokenizer_class": named} if named else {}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": TOKENIZER.eos_id}))
    with pytest.raises(UserError, match="writes eos_token, which this file does not name: add the token, or null"):
        Tokenizer.load(tmp_path, VOCABULARY)
    for told in (None, "<|endoftext|>"):
        written(tmp_path, TOKENIZER.core, settings | {"eos_token": told})
        assert Tokenizer.load(tmp_path, VOCABULARY).template is not None
