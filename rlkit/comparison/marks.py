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
    """The mark of a file; with it those of the code in its folder, or in the package of a module as pk.maze.

    Code runs with the neighbors that it imports.
    """
    mark = settings.get(f"{MARKS}{value}")
    if not mark:
        return value
    if value.endswith(".py"):
        folder = re.escape(os.path.join(os.path.dirname(value), ""))
    elif (package := value.partition(".")[0]) and package != value:
        folder = f".*{re.escape(os.path.join(os.sep, package, ''))}"
    else:
        return mark
    code = ((re.fullmatch(rf"{MARKS}{folder}(.*\.py)", key), mark) for key, mark in settings.items())
    found = sorted((path[1], mark) for path, mark in code if path and mark)
    return repr([mark, *found]) if found else mark
