"""How the page of tokens spells each token."""

from collections.abc import Sequence

import pytest
from support.sentence_pieces import sentence_piece
from support.small_model import TOKENIZER
from tokenizers import decoders

from rlkit.pages.live import BROKEN, spelled

BYTES = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


@pytest.mark.parametrize("decoder", [decoders.Sequence(BYTES), decoders.Metaspace("▁", "always")], ids=str)
def test_tokens_of_sentence_piece_keep_the_spaces_before_them(decoder: decoders.Decoder) -> None:
    tokenizer = sentence_piece("legacy")
    tokenizer.core.decoder = decoder
    ids = tokenizer.encode_after([" 24 s 2"])[0]
    assert spelled(tokenizer, ids) == [" 24", " ", "s", " 2"]
    assert spelled(tokenizer, [*ids, tokenizer.eos_id])[-1] == "", "an end token is no text"


def test_tokens_of_bytes_are_what_they_were() -> None:
    ids = TOKENIZER.encode(["Ann has  12 apples\n####"])[0]
    assert spelled(TOKENIZER, ids) == TOKENIZER.decode([[token] for token in ids])
    assert spelled(TOKENIZER, []) == []


@pytest.mark.parametrize("text", ["é", "a שלום b", "👩‍👩‍👧 é\n", "数数 12"])
def test_a_character_of_several_tokens_is_whole_at_the_last_of_them(text: str) -> None:
    ids = TOKENIZER.encode([text])[0]
    found = spelled(TOKENIZER, ids)
    assert len(found) == len(ids) > len(text) and "".join(found) == text


def test_bytes_of_several_characters_in_one_token_are_put_together() -> None:
    class Pairs:
        """A tokenizer whose tokens are pieces of bytes that overlap characters."""

        pieces = ("é".encode()[:1], "é".encode()[1:] + "ü".encode()[:1], "ü".encode()[1:], b"a", b"\xff")
        eos_id: int = 9
        stop_ids: tuple[int, ...] = (9,)

        def decode(self, rows: list[list[int]]) -> list[str]:
            return [b"".join(self.pieces[i] for i in row).decode("utf-8", "replace") for row in rows]

        def stops(self, texts: Sequence[str]) -> tuple[int, ...]:
            return self.stop_ids

    assert spelled(Pairs(), [3, 0, 1, 2, 3]) == ["a", "", "", "éü", "a"]
    assert spelled(Pairs(), [4, 3, 0, 3]) == [BROKEN, "a", BROKEN, "a"], "invalid bytes stay as they are"
