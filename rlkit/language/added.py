"""The added tokens of a tokenizer that depend on other files of its folder than tokenizer.json."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken

from rlkit.api import UserError
from rlkit.language.files import Fields, Json, read_json
from rlkit.language.rules import TOKEN
from rlkit.prompts import Prompt

LISTED = "added_tokens_decoder"  # key of tokenizer_config.json: id → token
OLDER = "added_tokens.json"  # text of a token → id; it is read where that key is missing
NAMES = "special_tokens_map.json"  # the same names as in tokenizer_config.json; it is read where that key is missing
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRA = ("extra_special_tokens", "additional_special_tokens")  # more of them without a name; the second is older
OWN = ("model_specific_special_tokens", "extra_special_tokens")  # may map further names to tokens
ASKED = ("messages", "tools", "documents", "add_generation_prompt")  # other variables of a chat template
PLAIN = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes without special tokens of their own
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
END_SIZE = 64  # characters of a text that hold its last token


def read_settings(folder: Path) -> Json:
    """tokenizer_config.json, with what special_tokens_map.json says in older folders."""
    path = folder / "tokenizer_config.json"
    settings = read_json(path)
    if LISTED not in settings:
        older = Fields(read_json(folder / NAMES), str(folder / NAMES))
        settings |= {key: _told(older, key) for key in older.content}
    if Fields(settings, str(path)).flag("split_special_tokens"):
        raise UserError(
            f"{path}: split_special_tokens is true, so that a chat template could write no special token: write false "
            "there"
        )
    return settings


def _told(older: Fields, key: str) -> object:
    """A value of special_tokens_map.json as tokenizer_config.json has it, where tokens with flags need a type."""
    value = older.content[key]
    if key.endswith("_token"):
        older.token(key)  # refuses what is none
    typed = [
        {**x, "special": True, "__type": "AddedToken"} if isinstance(x, dict) and "content" in x else x
        for x in (value if isinstance(value, list) else [value])
    ]
    return typed if isinstance(value, list) else typed[0]


def add_listed(core: tokenizers.Tokenizer, folder: Path, config: Fields, named: Sequence[str]) -> None:
    """Add the tokens that only tokenizer_config.json or added_tokens.json lists, as transformers does.

    named: the special tokens. Tokens get the next free ids, in the order of their ids in the file.
    """
    if config.content.get(LISTED) is not None:
        listed = config.mapping(LISTED)
        if not all(key.isascii() and key.isdecimal() and len(key) < 10 for key in listed):
            raise config.wrong(LISTED, "a mapping from ids to tokens")
        tokens = Fields(listed, f"{config.where}: {LISTED}")
        core.add_tokens([_token(tokens, key) for key in sorted(listed, key=int)])
        return
    older = Fields(read_json(folder / OLDER), str(folder / OLDER))
    ids = {text: older.whole(text, least=0) for text in older.content}
    texts = Fields({text: text for text in ids}, older.where)
    known = {token.content for token in core.get_added_tokens_decoder().values()}
    for text in sorted(ids.keys() - known, key=lambda text: (ids[text], text)):
        special = text in named
        core.add_tokens([AddedToken(_text(texts, text), normalized=not special, special=special)])


def _token(tokens: Fields, key: str) -> AddedToken:
    given = tokens.mapping(key)
    flags = Fields(given, f"{tokens.where}: {key}")
    return AddedToken(_text(tokens, key), **{name: flags.flag(name) for name in FLAGS if given.get(name) is not None})


def _text(tokens: Fields, key: str) -> str:
    text = tokens.token(key)
    if not text or len(text) > TOKEN:
        raise tokens.wrong(key, f"a token of 1 to {TOKEN} characters")
    return text


def without_unknown(core: tokenizers.Tokenizer, vocabulary: int, needed: Sequence[str]) -> tokenizers.Tokenizer:
    """The tokenizer without added tokens beyond the vocabulary, but for those in one of the `needed` texts.

    Gemma 3's models of text share their tokenizer with those of pictures, whose <image_soft_token> they do not know.
    """
    beyond = {token.content for i, token in core.get_added_tokens_decoder().items() if i >= vocabulary}
    unused = {token for token in beyond if not any(token in text for text in needed)}
    if not unused:
        return core
    content = json.loads(core.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in unused]
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def named(config: Fields) -> list[AddedToken]:
    """The special tokens that have a name of their own; some models have more names than the usual ones."""
    own = [key for key, x in config.content.items() if key.endswith("_token") and isinstance(x, str)]
    found = [_special(config, key) for key in dict.fromkeys([*SPECIAL, *own]) if config.token(key)]
    return [*found, *(_special(tokens, name) for tokens in _own(config) for name in tokens.content)]


def _own(config: Fields) -> list[Fields]:
    """The mappings from further names to tokens."""
    given = {key: config.content.get(key) for key in OWN}
    return [Fields(x, f"{config.where}: {key}") for key, x in given.items() if isinstance(x, dict)]


def _special(tokens: Fields, key: str) -> AddedToken:
    """A token: its text, which is special, or a mapping that says so, and if it takes the white space beside it."""
    given = tokens.content[key] if isinstance(tokens.content[key], dict) else {}
    flags = Fields(given, f"{tokens.where}: {key}")
    said = {name: flags.flag(name) for name in FLAGS if given.get(name) is not None}
    return AddedToken(_text(tokens, key), **{"normalized": False, "special": not given, **said})


def by_name(config: Fields) -> dict[str, str]:
    """The special tokens by their names, which are variables of a chat template, as in transformers."""
    own = {key: x for key, x in config.content.items() if key.endswith("_token") and isinstance(x, str)}
    for tokens in _own(config):
        own |= {x: text for x in tokens.content if (text := tokens.token(x)) is not None and x not in ASKED}
    return own | {key: text for key in SPECIAL if (text := config.token(key)) is not None}


def check_names(config: Fields, template: str) -> None:
    """Refuse a template that writes a token which only the tokenizer's class names, as transformers' GPT2Tokenizer."""
    kind = config.content.get("tokenizer_class")
    missing = [x for x in ("bos_token", "eos_token") if x not in config.content and re.search(rf"\b{x}\b", template)]
    if missing and kind not in PLAIN:
        raise UserError(
            f"{config.where}: the chat template writes {missing[0]}, which this file does not name: add the token, or "
            "null if there is none"
        )


def unnamed(config: Fields) -> list[AddedToken]:
    """The other special tokens."""
    key = next((key for key in EXTRA if config.content.get(key)), EXTRA[0])
    found = config.content.get(key) or []
    if not isinstance(found, list | dict):
        raise config.wrong(key, "a list of texts")
    listed = {} if isinstance(found, dict) else {str(i): x for i, x in enumerate(found)}
    tokens = Fields(listed, f"{config.where}: {key}")
    return [_special(tokens, name) for name in listed]


def add_special(core: tokenizers.Tokenizer, named: Sequence[AddedToken], unnamed: Sequence[AddedToken]) -> None:
    """Make these tokens special, as transformers does: a text is shown without them.

    In some tokenizer.json the end token is an added token like any other, or a piece of the vocabulary. A token that no
    file lists gets the next free id. An unnamed token stays what an added token of this text is.
    """
    known = {token.content: token for token in core.get_added_tokens_decoder().values()}
    asked: dict[str, AddedToken] = {}
    for token in named:
        new = asked.setdefault(token.content, known.get(token.content, token))
        if not new.special or token.content not in known:
            new.special = True
            core.add_special_tokens([new])
    core.add_tokens([token for token in unnamed if token.content not in asked | known])


def text_of(core: tokenizers.Tokenizer, token: int) -> str | None:
    """The text of a token: `id_to_token` alone says `▁</s>` for a `</s>` that is read in normalized text."""
    known = core.get_added_tokens_decoder().get(token)
    return core.id_to_token(token) if known is None else known.content


def at_end(core: tokenizers.Tokenizer, texts: Sequence[str], read: Callable[[list[str]], list[list[int]]]) -> list[str]:
    """The added token that each text ends with, or "". The unknown one stands for other letters, which do not count.

    read: encodes the ends of those texts whose letters end like a token, which may be spelled in data.
    """
    if not texts:
        return []
    tokens = {number: token.content for number, token in core.get_added_tokens_decoder().items()}
    contents, ends = tuple(tokens.values()), [""] * len(texts)
    likely = [i for i, text in enumerate(texts) if text[-END_SIZE:].rstrip().endswith(contents)]
    for i, row in zip(likely, read([_end_of(texts[i]) for i in likely]), strict=True):
        end = tokens.get(row[-1], "")
        ends[i] = end if texts[i].rstrip().endswith(end) else ""
    return ends


def _end_of(text: str) -> str:
    return text.part(max(0, len(text) - END_SIZE)) if isinstance(text, Prompt) else text[-END_SIZE:]
