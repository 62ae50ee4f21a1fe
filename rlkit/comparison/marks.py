"""What the settings of a run say of the files that they name."""

import os
from collections.abc import Mapping

MARKS = "marks."  # begins the settings that tell whether a file has changed


def content(settings: Mapping[str, str], value: str) -> str:
    """The mark of the file that a value names, which is the same wherever that lies, or the value itself.

    Of code it is the marks of all code in its folder: a file runs with the neighbors that it imports.
    """
    folder = f"{MARKS}{os.path.join(os.path.dirname(value), '')}"
    code = [(key.removeprefix(folder), mark) for key, mark in settings.items() if key.startswith(folder)]
    code = [(name, mark) for name, mark in sorted(code) if name.endswith(".py") and mark]
    mark = settings.get(f"{MARKS}{value}") or value
    return repr(code) if value.endswith(".py") and mark != value else mark
