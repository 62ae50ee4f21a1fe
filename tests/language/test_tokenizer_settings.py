"""What the other files of a folder say about its tokenizer.json, compared with transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.small_model import TOKENIZER
from tokenizers import Tokenizer as Core

from rlkit.language.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
VOCABULARY = 400
FLAGS = {"content": "<|x|>", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False}
TYPED = {**FLAGS, "__type": "AddedToken"}


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
