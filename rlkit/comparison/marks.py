"""What the settings of a run say of the files that they name."""

import os
import re
from collections.abc import Mapping

MARKS = "marks."  # begins the settings that tell whether a file has changed


def content(settings: Mapping[str, str], value: str) -> str:
    """The mark of the file that a value names, which is the same wherever that lies, or the value itself.

    Of FILE.py:NAME, model:FOLDER and several of these, each file or folder stands for its mark.
    """
    if f"{MARKS}{value}" in settings:
        return _mark(settings, value)
    return re.sub(r"[^,:]+", lambda part: _mark(settings, part[0]), value)


def _mark(settings: Mapping[str, str], value: str) -> str:
    """The mark of a file; of code the marks of all code in its folder: a file runs with the neighbors it imports."""
    mark = settings.get(f"{MARKS}{value}")
    if not mark or not value.endswith(".py"):
        return mark or value
    folder = f"{MARKS}{os.path.join(os.path.dirname(value), '')}"
    code = [(key.removeprefix(folder), mark) for key, mark in settings.items() if key.startswith(folder)]
    return repr([(name, mark) for name, mark in sorted(code) if name.endswith(".py") and mark])
