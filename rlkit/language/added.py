"""The added tokens of a tokenizer that depend on other files of its folder than tokenizer.json."""

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken

from rlkit.language.files import Fields, read_json
from rlkit.language.rules import TOKEN

LISTED = "added_tokens_decoder"  # key of tokenizer_config.json: id → token
OLDER = "added_tokens.json"  # text of a token → id; it is read where that key is missing
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


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


def mark_special(core: tokenizers.Tokenizer, named: Sequence[str]) -> None:
    """Mark the tokens that tokenizer_config.json names as special, as transformers does: a text is shown without them.

    In some tokenizer.json the end token is an added token like any other, or a piece of the vocabulary.
    """
    known = {token.content: token for token in core.get_added_tokens_decoder().values()}
    for text in dict.fromkeys(named):
        token = known.get(text, AddedToken(text, normalized=False))
        if core.token_to_id(text) is not None and not token.special:
            token.special = True
            core.add_special_tokens([token])
