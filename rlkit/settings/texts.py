"""What somebody who types a text means: its backslashes, its numbers, its brackets."""

import json
import re
from collections.abc import Callable

from rlkit.settings import strict_yaml

BARE = re.compile(r"\[(?!\s*[\"'\]])")  # begins as a list whose first text has no quotes
BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")  # JSON leaves them as they are, and YAML takes some for line breaks


class Typed(str):
    """A text of a command line, where a shell has no easy way to write a line break."""


def unescaped(text: str) -> str:
    """What somebody who types backslashes means."""
    return re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], text)


def scalar(text: str) -> object:
    """A number, a list, a mapping, true, false or null as YAML reads it; any other text stays as it was typed."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    found = strict_yaml.load(text)
    if isinstance(found, dict | list) or text.lstrip()[:1] in ("'", '"', "|", ">"):
        return found
    # Blanks, line breaks and what follows a #, which YAML leaves out, belong to a text.
    left_out = found is None or isinstance(found, str) or "#" in text
    return text if left_out and text.strip().lower() not in ("null", "~") else found


def as_json(value: object, default: Callable[[object], object] | None = None) -> str:
    """A value on one line, as JSON and YAML both read it."""
    text = json.dumps(value, ensure_ascii=False, default=default)
    return BREAKS.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
