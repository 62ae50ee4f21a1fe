"""The rules of a `tokenizer.json`: limits on how long they make a text, checked before any text is read."""

import base64
import math
from collections.abc import Iterator
from pathlib import Path

from rlkit.api import UserError
from rlkit.language.files import Json

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
MOST = 2000  # most rules, and items in them
LONGEST = 10_000  # most characters of a pattern; DeepSeek's, which lists its letters, has hundreds
GROWTH = 1000.0  # most times that a text may grow; published models make it a few times as long
TOKEN = 1000  # most characters of a token


def check_rules(content: Json, path: Path) -> None:
    """Refuse a tokenizer that makes a short text very long, which would exhaust memory, or that draws at random."""
    found = _beyond(content)
    if found:
        raise UserError(f"{path}: {found}, which no tokenizer needs: restore it from where the model came from")
    model = content.get("model")
    if isinstance(model, dict) and model.get("dropout"):
        raise UserError(f"{path}: with a dropout, a text is other tokens each time it is read: write null there")


def _beyond(content: Json) -> str:
    """What exceeds its limit; "" where nothing does."""
    items = [item for part in PARTS for item in _inside(content.get(part))]
    model = content.get("model")
    items += model.values() if isinstance(model, dict) else []  # for example the replacement of each character
    if len(items) > MOST:
        return f"{len(items):,} items in its rules"
    longest = max((len(item) for item in items if isinstance(item, str)), default=0)
    if longest > LONGEST:
        return f"a text of {longest:,} characters in its rules"
    growth = sum(math.log(_growth(item)) for item in items if isinstance(item, dict))
    if growth > math.log(GROWTH):
        return f"rules that may make a text more than {GROWTH:,.0f} times as long"
    words = model.get("vocab") if isinstance(model, dict) else None
    added = content.get("added_tokens")
    added = added if isinstance(added, list) else []  # another type is refused by the library
    tokens = [*_tokens(words), *_tokens([[x.get("content")] for x in added if isinstance(x, dict)])]
    longest = max(map(len, tokens), default=0)
    return f"a token of {longest:,} characters" if longest > TOKEN else ""


def _inside(part: object) -> Iterator[object]:
    """A part and everything in it, except character tables, which are long: only their longest entry counts."""
    yield part
    for key, inner in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if key != "precompiled_charsmap":
            yield from _inside(inner)


def _growth(rule: Json) -> float:
    """The factor by which a rule may lengthen a text."""
    kind, content, pattern = rule.get("type"), rule.get("content"), rule.get("pattern")
    if kind == "Replace" and isinstance(content, str):
        exact = pattern.get("String") if isinstance(pattern, dict) else pattern
        if isinstance(exact, str) and exact:
            return max(1.0, len(content) / len(exact))
        return 1.0 + len(content)  # a regular expression may match before each character
    if kind == "Precompiled":
        return max(1.0, _longest_entry(rule.get("precompiled_charsmap")))
    if kind == "Prepend" and isinstance(rule.get("prepend"), str):
        return 1.0 + len(rule["prepend"])
    return 2.0 if kind == "ByteLevel" else 1.0


def _longest_entry(table: object) -> int:
    """The longest replacement in a SentencePiece table: 4 bytes (size of index), index, NUL-terminated texts."""
    try:
        data = base64.b64decode(table) if isinstance(table, str) else b""
    except ValueError:  # the library reports it
        return 0
    return max(map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")))


def _tokens(vocabulary: object) -> list[str]:
    """The tokens in a mapping from tokens to ids, or in a list of [token, score]."""
    listed = vocabulary if isinstance(vocabulary, list) else []
    named = list(vocabulary) if isinstance(vocabulary, dict) else [x[0] for x in listed if isinstance(x, list) and x]
    return [text for text in named if isinstance(text, str)]
