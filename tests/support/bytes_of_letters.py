"""A tokenizer like that of Llama 2: what is in no token is spelled by bytes, and a first space is dropped."""

import tokenizers
from tokenizers import decoders, models

from rlkit.language.tokenizer import Tokenizer

WORDS = ["<unk>", "</s>", "▁a", "▁b", "a", "b", "▁", "="]
VOCABULARY = {word: i for i, word in enumerate([*WORDS, *(f"<0x{byte:02X}>" for byte in range(256))])}


def tokenizer() -> Tokenizer:
    core = tokenizers.Tokenizer(models.BPE(VOCABULARY, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    core.decoder = decoders.Sequence(parts)
    core.add_special_tokens(["</s>"])
    return Tokenizer(core, 1, 1)


def ids(*parts: str | bytes) -> list[int]:
    """Tokens by their words, and bytes."""
    spelled = [[part] if isinstance(part, str) else [f"<0x{byte:02X}>" for byte in part] for part in parts]
    return [VOCABULARY[word] for words in spelled for word in words]
