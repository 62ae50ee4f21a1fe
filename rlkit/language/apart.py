"""Template text and data are encoded separately, so that a special token in a question is ordinary text.

Ordinary text is encoded by the unchanged tokenizer, so its ids are the usual ones. Only where the data spell a special
token, a renamed copy of the tokenizer is used, which knows special tokens as private characters of Unicode. The special
tokens of the template are replaced by these characters, and a special token spelled in the data is ordinary text to it.
"""

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import tokenizers
from tokenizers import AddedToken

from rlkit.api import UserError
from rlkit.prompts import Prompt

FIRST, LAST = 0xF0000, 0x10FFFD  # private-use characters of Unicode's last two planes


@dataclass(frozen=True)
class Alphabet:
    """A private character for each of some tokens, the longest token first."""

    tokens: tuple[str, ...]
    first: int = FIRST

    @classmethod
    def unlike(cls, texts: Iterable[str], tokens: Sequence[str]) -> "Alphabet":
        """An alphabet whose characters appear in none of the texts."""
        taken = sorted({ord(c) for text in texts if not text.isascii() for c in text if FIRST <= ord(c) <= LAST})
        ordered, first = tuple(sorted(tokens, key=lambda token: (-len(token), token))), FIRST
        for code in taken:
            if code >= first + len(tokens):
                break
            first = code + 1
        if first + len(tokens) > LAST:
            raise UserError("the texts use all private letters of Unicode: drop such rows")
        return cls(ordered, first)

    @property
    def pattern(self) -> "re.Pattern[str]":
        """A pattern that matches any of the tokens; of two with the same beginning the longer one matches."""
        return re.compile("|".join(map(re.escape, self.tokens)) or "(?!)")

    def letter(self, token: str) -> str:
        return chr(self.first + self.tokens.index(token))

    @property
    def letters(self) -> "re.Pattern[str]":
        return re.compile(f"[{chr(self.first)}-{chr(self.first + len(self.tokens) - 1)}]" if self.tokens else "(?!)")


def control_tokens(core: tokenizers.Tokenizer, template: str = "") -> list[str]:
    """The special tokens, and other single tokens that the template writes, except whitespace."""
    added = core.get_added_tokens_decoder().values()
    return [x.content for x in added if x.special or (x.content in template and not x.content.isspace())]


def marked(text: Prompt, alphabet: Alphabet, only: Container[str] | None = None) -> str:
    """The text with a private character for each token that lies in the data, wholly or in part.

    only: tokens to replace; None: all of the alphabet.
    """
    if not text.data:
        return str(text)

    def replaced(m: "re.Match[str]") -> str:
        return alphabet.letter(m[0]) if text.holds(*m.span()) and (only is None or m[0] in only) else m[0]

    return alphabet.pattern.sub(replaced, text)


def unmarked(text: str, alphabet: Alphabet) -> Prompt:
    """The text with tokens in place of the private characters; each of those tokens is marked as data."""
    parts, spans, at, size = [], [], 0, 0
    for m in alphabet.letters.finditer(text):
        token = alphabet.tokens[ord(m[0]) - alphabet.first]
        size += m.start() - at
        parts += [text[at : m.start()], token]
        spans.append((size, size + len(token)))
        at, size = m.end(), size + len(token)
    return Prompt("".join([*parts, text[at:]]), tuple(spans))


def spelled(core: tokenizers.Tokenizer, prompt: Prompt) -> bool:
    """Whether the data of a prompt contain the text of a special token."""
    alphabet = _alphabet(core)
    return any(_is_data(m, prompt, core) for m in alphabet.pattern.finditer(prompt)) if prompt.data else False


def _is_data(m: "re.Match[str]", prompt: Prompt, core: tokenizers.Tokenizer) -> bool:
    """Whether the matched token is ordinary text: a special token within data, or one that was marked as data."""
    return m.span() in prompt.data or (prompt.holds(*m.span()) and m[0] in special_tokens(core))


@lru_cache(maxsize=8)
def special_tokens(core: tokenizers.Tokenizer) -> frozenset[str]:
    return frozenset(control_tokens(core))


@lru_cache(maxsize=8)
def _alphabet(core: tokenizers.Tokenizer) -> Alphabet:
    return Alphabet.unlike([], [x.content for x in core.get_added_tokens_decoder().values()])


def read_apart(core: tokenizers.Tokenizer, prompt: Prompt, special: bool) -> list[int]:
    """The ids of a prompt whose data contain special tokens."""
    alphabet, whole = Alphabet.unlike([prompt], _alphabet(core).tokens), core.encode(prompt, add_special_tokens=False)
    added = core.get_added_tokens_decoder()  # in Llama's first tokenizers, </s> after a letter is a text
    read = Prompt(prompt, tuple(span for i, span in zip(whole.ids, whole.offsets, strict=True) if i in added))

    def replaced(m: "re.Match[str]") -> str:
        return m[0] if _is_data(m, prompt, core) or not read.holds(*m.span()) else alphabet.letter(m[0])

    text = alphabet.pattern.sub(replaced, prompt)
    copy, meant = _renamed(core, alphabet)
    return [meant.get(i, i) for i in copy.encode(text, add_special_tokens=special).ids]


@lru_cache(maxsize=8)
def _renamed(core: tokenizers.Tokenizer, alphabet: Alphabet) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
    """A copy of a tokenizer that knows its added tokens as characters of an alphabet, and their original ids."""
    content = json.loads(core.to_str())
    for token in content["added_tokens"]:
        token["special"] = True  # all of them are read as text now
    model, special = content["model"], {*alphabet.tokens}
    if model["type"] == "Unigram":  # it would find special tokens in a text as pieces of its vocabulary
        pieces = model["vocab"]
        model["vocab"] = [[alphabet.letter(text) if text in special else text, score] for text, score in pieces]
    copy = tokenizers.Tokenizer.from_str(json.dumps(content))
    copy.encode_special_tokens = True
    meant = {}
    for number, token in core.get_added_tokens_decoder().items():
        letter = alphabet.letter(token.content)
        flags = {"single_word": token.single_word, "lstrip": token.lstrip, "rstrip": token.rstrip}
        stays = copy.normalizer is None or letter in copy.normalizer.normalize_str(letter)  # BERT's drops such letters
        copy.add_tokens([AddedToken(letter, special=False, normalized=token.normalized and stays, **flags)])
        found = copy.token_to_id(letter)
        assert found is not None
        meant[found] = number
    return copy, meant
