"""The special tokens that a chat template calls by their names."""

import json
from pathlib import Path

import pytest
from support.small_model import TOKENIZER, model
from transformers import AutoTokenizer

from rlkit.language.chat import read_template
from rlkit.language.tokenizer import Tokenizer
from rlkit.prompts import Turn, data

TEMPLATE = "{{ eos_token }}{{ turn_token }}|{{ bos_token }}|{{ messages[0].content }}{{ messages|length }}"
END = "<|endoftext|>"


@pytest.mark.parametrize("key", ["", "extra_special_tokens", "model_specific_special_tokens"])
def test_tokens_with_names_of_their_own_are_variables_as_in_transformers(tmp_path: Path, key: str) -> None:
    model().save(tmp_path)
    path, names = tmp_path / "tokenizer_config.json", {"turn_token": END}
    settings = json.loads(path.read_text()) | (names if not key else {key: names}) | {"chat_template": TEMPLATE}
    path.write_text(json.dumps(settings))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    asked = theirs.apply_chat_template([{"role": "user", "content": "2 + 3?"}], tokenize=False)
    found = Tokenizer.load(tmp_path, len(TOKENIZER)).chat([[Turn("user", data("2 + 3?"))]], {})
    assert found == [asked] == [f"{END}{END}||2 + 3?1"]


def test_a_name_does_not_replace_what_a_template_is_asked(tmp_path: Path) -> None:
    names = {"messages": END, "tools": END, "eos_token": "other", "turn": {"content": END}}
    template = read_template(
        tmp_path, {"chat_template": "", "eos_token": END, "bos_token": None, "extra_special_tokens": names}, None
    )
    assert template is not None and dict(template.names) == {"eos_token": END, "turn": END}
