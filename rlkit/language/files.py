"""The JSON files of a model folder: read with limits, and each field checked."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlkit import memory
from rlkit.api import UserError
from rlkit.disk import is_file

Json = dict[str, Any]  # a JSON object of Hugging Face; its authors define the content, and `Fields` checks what is read
LARGEST = 2**22  # most bytes of a JSON file; published models have less than a third of it
VOCABULARY = 2**26  # most bytes of tokenizer.json; published models have less than 35 MB
ROOM = 24  # most bytes of memory per byte of a file: an empty list takes 3 there and 64 here
DEEPEST = 50  # most levels of nesting; deeper JSON could be read but not written again
MOST = 2**24  # most of any size in config.json: a product of two still fits into 64 bits


def read_json(path: Path, largest: int = LARGEST) -> Json:
    """The object in a JSON file of at most `largest` bytes; {} where there is no such file."""
    if not os.path.lexists(path):
        return {}
    check_file(path, largest)
    memory.check(ROOM * path.stat().st_size, str(path), "restore it from where the model came from")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError(f"it holds a {type(content).__name__}")
        check_depth(content)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not a JSON object ({error}); restore it from where the model came from") from None
    return content


def check_file(path: Path, largest: int | None = None) -> None:
    """Refuse anything but a regular file before it is opened: reading a pipe waits forever. largest: in bytes."""
    if not is_file(path):
        raise UserError(f"{path}: not a file; restore it from where the model came from")
    if largest is not None and path.stat().st_size > largest:
        raise UserError(f"{path}: larger than {largest / 2**20:g} MB; restore it from where the model came from")


def check_depth(content: object) -> None:
    """Raises: ValueError where lists and mappings are nested more than DEEPEST levels deep."""
    level = [content]
    for _ in range(DEEPEST):
        holders = [x.values() if isinstance(x, dict) else x for x in level if isinstance(x, dict | list)]
        level = [inner for holder in holders for inner in holder]
        if not level:
            return
    raise ValueError(f"nested more than {DEEPEST} levels deep")


@dataclass(frozen=True)
class Fields:
    """Typed access to the fields of a JSON object; `where` is the file, for error messages."""

    content: Json
    where: str

    def whole(self, key: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """An integer from `least` to `most`; without a default the key is required."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        value = self._get(key, default)
        number = not isinstance(value, bool) and isinstance(value, int | float)  # NaN is within no limits
        if not number or not low <= value <= high:
            raise self.wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """true or false; a null is false."""
        value = self.content.get(key, default)
        if value not in (None, True, False) or (isinstance(value, int | float) and not isinstance(value, bool)):
            raise self.wrong(key, "true or false")
        return bool(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def mapping(self, key: str) -> Json:
        """{} where it is missing or null."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "a mapping")
        return value or {}

    def ids(self, key: str, vocabulary: int) -> list[int]:
        """A list of token ids; the file has one id, a list, or none."""
        value = self.content.get(key)
        found = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(x, int) and not isinstance(x, bool) and 0 <= x < vocabulary for x in found):
            raise self.wrong(key, f"a token id or a list of them, from 0 to {vocabulary - 1}")
        return found

    def token(self, key: str) -> str | None:
        """A special token, written as a string or as {"content": string}."""
        value = self.content.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        half = isinstance(text, str) and not text.isascii() and re.search("[\ud800-\udfff]", text)
        if (value is not None and not isinstance(text, str)) or half:  # half of a character, which tokenizers refuse
            raise self.wrong(key, "a text")
        return text

    def wrong(self, key: str, allowed: str) -> UserError:
        value = self.content.get(key)
        words = json.dumps(value)[:40] if key in self.content else "missing"
        shown = "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else words
        return UserError(f"{self.where}: {key} is {shown}, not {allowed}: restore it from where the model came from")

    def _get(self, key: str, default: float | str | None) -> Any:  # Any: whatever the file holds; the caller checks
        if default is None and key not in self.content:
            raise UserError(f"{self.where}: the key '{key}' is missing; give the folder of a complete checkpoint")
        return self.content.get(key, default)
