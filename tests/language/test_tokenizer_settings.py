"""What the other files of a folder say about its tokenizer.json, compared with transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.small_model import TOKENIZER
from tokenizers import Tokenizer as Core
from tokenizers import decoders, models, pre_tokenizers

from rlkit.language.tokenizer import Tokenizer, cleaned

transformers = pytest.importorskip("transformers")
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
