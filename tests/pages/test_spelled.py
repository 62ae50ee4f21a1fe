"""How the page of tokens spells each token."""

import pytest
from support.sentence_pieces import sentence_piece
from support.small_model import TOKENIZER
from tokenizers import decoders

from rlkit.pages.live import spelled

BYTES = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


@pytest.mark.parametrize("decoder", [decoders.Sequence(BYTES), decoders.Metaspace("▁", "always")], ids=str)
def test_tokens_of_sentence_piece_keep_the_spaces_before_them(decoder: decoders.Decoder) -> None:
    tokenizer = sentence_piece("legacy")
    tokenizer.core.decoder = decoder
    ids = tokenizer.encode_after([" 24 s 2"])[0]
    assert spelled(tokenizer, ids) == [" 24", " ", "s", " 2"]
    assert spelled(tokenizer, [*ids, tokenizer.eos_id])[-1] == "", "an end token is no text"


def test_tokens_of_bytes_are_what_they_were() -> None:
    ids = TOKENIZER.encode(["Ann has  12 apples\n#### é"])[0]
    assert spelled(TOKENIZER, ids) == TOKENIZER.decode([[token] for token in ids])
    assert spelled(TOKENIZER, []) == []
