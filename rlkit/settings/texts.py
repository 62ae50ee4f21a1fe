"""What somebody who types a text means: its backslashes, its numbers, its brackets."""

import json
import re
from collections.abc import Callable

import yaml

from rlkit.settings import strict_yaml

BARE = re.compile(r"\[(?!\s*[\"'\]])")  # begins as a list whose first text has no quotes
OPENED = {"[": list, "{": dict, "'": str, '"': str}  # what begins so
CLOSE = """close its brackets and quotes, or put a text that begins with one into quotes, as in '"[a] b"'"""
BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")  # JSON leaves them as they are, and YAML takes some for line breaks


class Typed(str):
    """A text of a command line, where a shell has no easy way to write a line break."""


def unescaped(text: str) -> str:
    """What somebody who types backslashes means."""
    return re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], text)


def number(text: str) -> object:
    """What a field of one type takes: a number as Python reads it, such as 1_000 and inf, or else as `scalar` does."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return scalar(text)


def scalar(text: str) -> object:
    """A number, true, false or null by YAML's core schema, or what stands in brackets, braces or quotes.

    Any other text stays as it was typed: YAML would leave out what follows a #, and make a mapping of `Note: be brief`.

    Raises: yaml.YAMLError where brackets, braces or quotes cannot be read, or are not the whole text.
    """
    bare = text.strip(" \t\r\n")
    kind = OPENED.get(bare[:1])
    if kind is None and not (bare and any(form.fullmatch(bare) for form, _ in strict_yaml.CORE.values())):
        return text
    found: object = strict_yaml.load(bare)
    if kind is not None and not isinstance(found, kind):
        raise yaml.YAMLError(f"more than one {kind.__name__}")
    return found


def as_json(value: object, default: Callable[[object], object] | None = None) -> str:
    """A value on one line, as JSON and YAML both read it."""
    text = json.dumps(value, ensure_ascii=False, default=default)
    return BREAKS.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
