"""Convert the tokenizer of a GGUF file to the files of a Hugging Face-format folder, with `tokenizers`."""

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from rlkit.errors import UserError
from rlkit.language.files import Fields
from rlkit.language.gguf_file import Values
from rlkit.language.rules import TOKEN
from rlkit.language.tokenizer import failed, told

GGML = "tokenizer.ggml"  # prefix of the keys
CONTROL, USER_DEFINED = 3, 4  # types of tokens: <|im_end|> is control; <think> is text that is never split
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{REST}"
QWEN2 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{REST}"
SPLITS: dict[str, str | None] = {  # tokenizer.ggml.pre → the pattern that splits text before merging; None: as GPT-2
    "default": None,
    "gpt-2": None,
    "smollm": None,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
}
SPACE = "▁"  # replaces spaces in SentencePiece vocabularies
Entry = TypeVar("Entry", str, int, float)
SPLITTINGS = 5e7  # most characters examined when tokens are split in two; published vocabularies need 1e7


def tokenizer_files(path: Path, values: Values) -> dict[str, str]:
    """tokenizer.json, tokenizer_config.json with the chat template, and generation_config.json with the end tokens.

    Raises: UserError where the tokenizer is damaged or of an unsupported kind.
    """
    fields = Fields(values, str(path))
    kind = fields.text(f"{GGML}.model", "none")
    if kind not in ("gpt2", "llama"):
        raise UserError(f"{path}: the tokenizer is {ascii(kind)[:40]}, and gpt2 and llama are read: take another model")
    try:
        tokens = _tokens(values)
        ids = {name: _id(fields, key, len(tokens)) for name, key in ENDS.items()}
        core = _byte_level(fields, tokens) if kind == "gpt2" else _sentence_piece(fields, tokens)
        _add_special(core, values, tokens)
        text = {name: tokens[i] for name, i in ids.items() if i is not None}
        if fields.flag(f"{GGML}.add_bos_token", kind == "llama" or _pre(fields) in FIRST) and "bos_token" in text:
            core.post_processor = _beginning(text["bos_token"], ids["bos_token"])
    except UserError:
        raise
    except BaseException as error:
        if not failed(error):
            raise
        raise UserError(f"{path}: its tokenizer is damaged ({told(error)}); copy it again") from None
    settings: Values = {"tokenizer_class": "PreTrainedTokenizerFast", **text, "clean_up_tokenization_spaces": False}
    if "tokenizer.chat_template" in values:
        settings["chat_template"] = fields.text("tokenizer.chat_template")
    stops = [ids["eos_token"], *(_id(fields, key, len(tokens)) for key in ("eot", "eom"))]
    generation: Values = {"bos_token_id": ids["bos_token"], "pad_token_id": ids["pad_token"]}
    generation["eos_token_id"] = list(dict.fromkeys(i for i in stops if i is not None))
    said = {name: value for name, value in generation.items() if value is not None}
    return {
        "tokenizer.json": core.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
        "generation_config.json": json.dumps(said, indent=2) + "\n",
    }


def _id(fields: Fields, key: str, count: int) -> int | None:
    """The id of a special token; None where the file gives none."""
    key = f"{GGML}.{key}_token_id"
    return fields.whole(key, least=0, most=count - 1) if key in fields.content else None


def _tokens(values: Values) -> list[str]:
    tokens = _list(values, "tokens", str)
    if not tokens or len(set(tokens)) < len(tokens):
        raise ValueError("it has no token, or one twice")
    longest = max(map(len, tokens))
    if longest > TOKEN:
        raise ValueError(f"a token of {longest:,} characters, which no tokenizer needs")
    return tokens


def _list(values: Values, key: str, kind: type[Entry], count: int | None = None) -> list[Entry]:
    """An array of the file, whose entries have one type; with `count`, one entry for each token."""
    found = values.get(f"{GGML}.{key}")
    if not isinstance(found, list) or not all(type(x) is kind for x in found):
        raise ValueError(f"{key} is not a list of {'texts' if kind is str else 'numbers'}")
    if count not in (None, len(found)):
        raise ValueError(f"{len(found):,} {key} for {count:,} tokens")
    return found


def _beginning(token: str, number: int | None) -> processors.TemplateProcessing:
    """A post-processor that puts a token before each text."""
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, number)]
    )


ENDS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
FIRST = ("llama-bpe", "llama3", "llama-v3")  # these put their BOS token before each text unless the file says otherwise


def _pre(fields: Fields) -> str:
    return fields.text(f"{GGML}.pre", "default")


def _byte_level(fields: Fields, tokens: list[str]) -> Tokenizer:
    """GPT-2's scheme: bytes as characters, split by a pattern, then merged in the order of the merges."""
    pre = _pre(fields)
    if pre not in SPLITS:
        known = f"{', '.join(SPLITS)} are read: take another model"
        raise UserError(f"{fields.where}: the pre-tokenizer is {ascii(pre)[:40]}, and {known}")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [(left, right) for left, right in (pair.split(" ", 1) for pair in _list(fields.content, "merges", str))]
    core = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre in FIRST))
    pattern = SPLITS[pre]
    prefix = fields.flag(f"{GGML}.add_space_prefix")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    before: list[Any] = [pre_tokenizers.Split(Regex(pattern), behavior="isolated")] if pattern else []
    before += [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
    core.pre_tokenizer = pre_tokenizers.Sequence([*before, to_bytes])
    core.decoder = decoders.ByteLevel()
    if pattern is QWEN2:
        core.normalizer = normalizers.NFC()  # as the model was trained; llama.cpp omits it
    return core


def _sentence_piece(fields: Fields, tokens: list[str]) -> Tokenizer:
    """SentencePiece's BPE: ▁ for spaces, bytes for unknown characters, merges in the order of scores."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    unknown = _id(fields, "unknown", len(tokens)) or 0
    merges = _merges(vocabulary, _list(fields.content, "scores", float, len(tokens)))
    core = Tokenizer(models.BPE(vocabulary, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True))
    first = fields.flag(f"{GGML}.add_space_prefix", True)
    core.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first" if first else "never", split=False)
    parts: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if first else parts)
    return core


def _merges(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every pair of tokens that forms a token, in descending order of scores; equal scores by token id."""
    if sum(len(token) ** 2 for token in vocabulary) > SPLITTINGS or not all(map(math.isfinite, scores)):
        raise ValueError("its tokens are longer than those of any vocabulary, or a score is not finite")
    found = []
    for token, i in vocabulary.items():
        pairs = ((token[:at], token[at:]) for at in range(1, len(token)))
        found += [
            (-scores[i], vocabulary[left], vocabulary[right], left, right)
            for left, right in pairs
            if left in vocabulary and right in vocabulary
        ]
    return [(left, right) for *_, left, right in sorted(found)]


def _add_special(core: Tokenizer, values: Values, tokens: list[str]) -> None:
    if f"{GGML}.token_type" not in values:
        return
    marked = list(zip(tokens, _list(values, "token_type", int, len(tokens)), strict=True))
    core.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, kind in marked if kind == CONTROL])
    core.add_tokens([AddedToken(t, normalized=False, special=False) for t, kind in marked if kind == USER_DEFINED])
