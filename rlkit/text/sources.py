"""Sources of problems besides the generator: JSONL files and hub datasets, checked row by row; held-out splits."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path

from rlkit import memory
from rlkit.api import UserError
from rlkit.paths import home
from rlkit.terminal import warn
from rlkit.text.problems import Problem
from rlkit.text.reading import extract

HALF = re.compile(r"\\u[dD][89a-fA-F]")  # JSON's escape of half a surrogate pair
DEPTH = 100  # most nested lists and objects
Row = tuple[str, dict[str, object]]  # its place ("train.jsonl:17") and its content


def read_jsonl(path: str | Path) -> list[Row]:
    """Every row of a JSONL file, each an object; empty lines are skipped, other lines are refused by number."""
    path = Path(path)
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe waits forever
        raise UserError(f"{path}: not a file; give a .jsonl file")
    if os.path.isfile(path):
        memory.check(2 * path.stat().st_size, str(path), "give a smaller file")
    try:
        with open(path, "rb") as file:  # a file that reports size 0, such as one in /proc, may never end
            lines = re.split("\r\n?|\n", file.read(path.stat().st_size).decode("utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give the path of a .jsonl file") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not a path
        raise UserError(f"{path}: cannot be read as UTF-8 text ({_reason(error)}); give a .jsonl file") from None
    places = ((f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip())
    rows = [(where, _parse(where, line)) for where, line in places]
    if not rows:
        raise UserError(f"{path}: the file is empty; it needs one JSON object per line")
    return rows


def _parse(where: str, line: str) -> dict[str, object]:
    try:
        row = json.loads(line)
        if HALF.search(line):
            json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is not text
        if line.count("[") + line.count("{") > DEPTH:
            _check_depth(row)  # a few hundred levels more, and Python can neither copy nor write it
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: broken JSON ({_reason(error)}); every line must be one JSON object") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON {type(row).__name__}, not an object; every line must be one JSON object")
    return row


def _check_depth(row: object) -> None:
    inner = [row]
    for _ in range(DEPTH):
        inner = [x for each in inner for x in _parts(each)]
    if inner:
        raise ValueError(f"it is nested more than {DEPTH} deep")


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def text_field(where: str, row: dict[str, object], key: str) -> str:
    """A field that must hold text."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "is missing" if key not in row else f"is {json.dumps(value, default=str)[:40]}"
        raise UserError(f"{where}: {key!r} {found}; every row needs a text there (this one has: {', '.join(row)})")
    return value


def problems_from(rows: list[Row]) -> list[Problem]:
    """Problems from rows with `question` and an `answer` that ends in `#### N`; other fields become columns."""
    problems = []
    for where, row in rows:
        question, answer = text_field(where, row, "question"), text_field(where, row, "answer")
        if extract(answer, strict=True) is None:
            raise UserError(f"{where}: the answer gives no number after '####'; its last line must be '#### N'")
        if taken := sorted({"prompts", "completions"} & row.keys()):
            raise UserError(f"{where}: {' and '.join(taken)}: rewards take an argument of that name; rename it")
        columns = {key: value for key, value in row.items() if key not in ("question", "answer", "kind")}
        problems.append(Problem(question, answer, kind_of(row), columns))
    return problems


def kind_of(row: dict[str, object]) -> str:
    """The `kind` of a row, which may be a number; empty where it is none of both."""
    return told(row.get("kind"))


def told(value: object) -> str:
    """A text or a number of a row, as text; empty where it is none of both, as NaN is (what pandas has for nothing)."""
    if isinstance(value, bool) or (isinstance(value, float) and not isfinite(value)):
        return ""
    return str(value) if isinstance(value, str | int | float) else ""


def hub_rows(name: str) -> tuple[str, dict[str, list[Row]]]:
    """What is read of a hub dataset `owner/name`, and its splits; needs `datasets`.

    It is the configuration `main`, or else the first.

    Raises: UserError also where a folder has that name: `datasets` would read the folder, without a fingerprint of it.
    """
    check_no_folder(name)
    try:
        import datasets
        from datasets import get_dataset_config_names  # a folder of that name here has none
    except ImportError:
        raise UserError(f"env.source={name} is a hub dataset and needs a package: pip install datasets") from None
    try:
        configurations = get_dataset_config_names(name)
        chosen = "main" if "main" in configurations else configurations[0]
        loaded = datasets.load_dataset(name, chosen)
    except Exception as error:  # clients of the hub raise errors of several libraries; each means that there is no data
        raise UserError(
            f"env.source={name} could not be loaded from the hub ({type(error).__name__}: {_reason(error)}); check the "
            "name and the connection, or download the rows and give env.source=PATH.jsonl, or use env.source=embedded"
        ) from error
    several = f", configuration {chosen} of {len(configurations)}" if len(configurations) > 1 else ""
    return f"hub dataset {name}{several}", {
        split: [(f"{name}/{split}:{number}", dict(row)) for number, row in enumerate(rows, 1)]
        for split, rows in loaded.items()
    }


def check_no_folder(source: str) -> None:
    """Refuse a source that is a folder: only files get a fingerprint, by which a change is noticed."""
    if source and os.path.isdir(home(source)):
        file = os.path.join(source, "train.jsonl")
        raise UserError(f"env.source={source} is a folder here: give its file of problems, as in env.source={file}")


def tell_unread(path: Path, sizes: Mapping[str, int]) -> None:
    """Say in one line each which files beside this one look like splits and are not read; sizes: most rows of each."""
    for split, size in sizes.items():
        beside = path.with_name(f"{split}.jsonl")
        if size and beside != path and beside.is_file():
            warn(f"{path.name}: {beside.name} beside it is not read; the {split} split is held out of {path.name}")


def is_hub_id(source: str) -> bool:
    return re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", source) is not None and not source.endswith((".jsonl", ".json"))


def _hashed(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def hold_out(texts: list[str], sizes: dict[str, int]) -> Iterator[str]:
    """The split of each text: those with the smallest hashes go to the held-out splits in turn, the rest to train.

    Equal texts stay together, so no held-out text is trained on. A split has at most `size` texts, counting equal ones.
    A group of equal texts that is larger than the remaining room is skipped. If every group is larger than the whole
    size, the smallest group is held out, so that no split of a size above 0 is empty.
    """
    count = Counter(map(_hashed, texts))
    ordered = sorted(count)
    split_of: dict[bytes, str] = {}
    for split, size in sizes.items():
        chosen, left = [], size
        for text in ordered:
            if count[text] <= left:
                chosen.append(text)
                left -= count[text]
        if size and not chosen:
            chosen = sorted(ordered, key=lambda text: count[text])[:1]
        split_of.update(dict.fromkeys(chosen, split))
        ordered = [text for text in ordered if text not in split_of]
    return (split_of.get(_hashed(text), "train") for text in texts)
