"""The tokenizer of a GGUF file as the files of a Hugging Face-format folder, built with `tokenizers`."""

import json
from pathlib import Path
from typing import Any

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

CONTROL, USER_DEFINED = 3, 4  # types of tokens: <|im_end|> is no text; <think> is text that is never cut
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{REST}"
QWEN2 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{REST}"
SPLITS: dict[str, str | None] = {  # tokenizer.ggml.pre: where text is cut before it is merged; None: as GPT-2 did
    "default": None,
    "gpt-2": None,
    "smollm": None,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
}
SPACE = "▁"  # in place of spaces in SentencePiece vocabularies
Fields = dict[str, Any]  # of a file: whatever its author wrote


def tokenizer_files(path: Path, fields: Fields) -> dict[str, str]:
    """tokenizer.json, tokenizer_config.json with the chat template, and generation_config.json with the end tokens.

    Raises: UserError for a tokenizer that is damaged or of another kind.
    """
    kind, tokens = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.tokens")
    if kind not in ("gpt2", "llama") or not isinstance(tokens, list):
        raise UserError(f"{path}: the tokenizer is {kind!r}, and gpt2 and llama are read: take another model")
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in ENDS.items()}
    try:
        core = _byte_level(path, fields, tokens) if kind == "gpt2" else _sentence_piece(fields, tokens)
        _add_special(core, fields, tokens)
        text = {name: tokens[i] for name, i in ids.items() if i is not None}
        if fields.get("tokenizer.ggml.add_bos_token", kind == "llama" or _pre(fields) in FIRST) and "bos_token" in text:
            core.post_processor = _beginning(text["bos_token"], ids["bos_token"])
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        told = " ".join(str(error).split())[:100]
        raise UserError(f"{path}: its tokenizer is damaged ({told}); copy it again") from None
    settings: Fields = {"tokenizer_class": "PreTrainedTokenizerFast", **text, "clean_up_tokenization_spaces": False}
    if isinstance(template := fields.get("tokenizer.chat_template"), str):
        settings["chat_template"] = template
    stops = [ids["eos_token"], *(fields.get(f"tokenizer.ggml.{key}_token_id") for key in ("eot", "eom"))]
    generation = {"bos_token_id": ids["bos_token"], "pad_token_id": ids["pad_token"]}
    generation["eos_token_id"] = list(dict.fromkeys(i for i in stops if i is not None))
    said = {name: value for name, value in generation.items() if value is not None}
    return {
        "tokenizer.json": core.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
        "generation_config.json": json.dumps(said, indent=2) + "\n",
    }


def _beginning(token: str, number: Any) -> processors.TemplateProcessing:
    """What puts a token before each text."""
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, number)]
    )


ENDS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
FIRST = ("llama-bpe", "llama3", "llama-v3")  # put their first token before each text where a file does not say


def _pre(fields: Fields) -> str:
    return str(fields.get("tokenizer.ggml.pre", "default"))


def _byte_level(path: Path, fields: Fields, tokens: list[str]) -> Tokenizer:
    """GPT-2's scheme: bytes as characters, cut by a pattern, then merged in the order of the merges."""
    pre = _pre(fields)
    if pre not in SPLITS:
        raise UserError(f"{path}: the pre-tokenizer is {pre!r}, and {', '.join(SPLITS)} are read: take another model")
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    core = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre in FIRST))
    pattern = SPLITS[pre]
    prefix = bool(fields.get("tokenizer.ggml.add_space_prefix", False))
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    before: list[Any] = [pre_tokenizers.Split(Regex(pattern), behavior="isolated")] if pattern else []
    before += [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
    core.pre_tokenizer = pre_tokenizers.Sequence([*before, to_bytes])
    core.decoder = decoders.ByteLevel()
    if pattern is QWEN2:
        core.normalizer = normalizers.NFC()  # as its authors trained it; llama.cpp leaves it out
    return core


def _sentence_piece(fields: Fields, tokens: list[str]) -> Tokenizer:
    """SentencePiece's BPE: ▁ for spaces, bytes for what is in no token, merges in the order of the scores."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    unknown = fields.get("tokenizer.ggml.unknown_token_id", 0)
    merges = _merges(vocabulary, fields["tokenizer.ggml.scores"])
    core = Tokenizer(models.BPE(vocabulary, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True))
    first = bool(fields.get("tokenizer.ggml.add_space_prefix", True))
    core.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first" if first else "never", split=False)
    parts: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    core.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if first else parts)
    return core


def _merges(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every pair of tokens that makes a token, the best scores first; among equals the earlier tokens."""
    found = []
    for token, i in vocabulary.items():
        pairs = ((token[:at], token[at:]) for at in range(1, len(token)))
        found += [
            (-scores[i], vocabulary[left], vocabulary[right], left, right)
            for left, right in pairs
            if left in vocabulary and right in vocabulary
        ]
    return [(left, right) for *_, left, right in sorted(found)]


def _add_special(core: Tokenizer, fields: Fields, tokens: list[str]) -> None:
    kinds = fields.get("tokenizer.ggml.token_type") or []
    marked = list(zip(tokens, kinds, strict=False))
    core.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, kind in marked if kind == CONTROL])
    core.add_tokens([AddedToken(t, normalized=False, special=False) for t, kind in marked if kind == USER_DEFINED])
