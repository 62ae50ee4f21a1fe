"""The three splits of a source: a JSONL file with a test file beside it, or a hub dataset; others are held out."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal

from rlkit.api import UserError
from rlkit.paths import home
from rlkit.terminal import warn
from rlkit.text.problems import Problem
from rlkit.text.sources import Row, check_no_folder, hold_out, hub_rows, is_hub_id, read_jsonl, tell_unread

PARTS = ("train", "validation", "test")  # a hub dataset may have others, which are not read
VALUES = (date, time, timedelta, Decimal, bytes)  # that JSON lacks and a fingerprint holds
Read = Callable[[list[Row]], list[Problem]]  # rows to checked problems


def load(source: str, read: Read, sizes: Mapping[str, int], allowed: str) -> tuple[dict[str, list[Problem]], str]:
    """The three splits, and one line that describes them.

    Arguments:
        source: a path, or a hub id.
        sizes: most rows of test and of validation; a split without rows of its own is held out of the training rows.
        allowed: the allowed sources, for the message where the source is neither.
    """
    path = home(source)
    if os.path.isfile(path) or source.endswith((".jsonl", ".json")):
        beside = path.with_name("test.jsonl")
        rows = {"train": read(read_jsonl(path))}
        if beside.is_file() and beside.resolve() != path.resolve():
            rows["test"] = read(read_jsonl(beside))
        name = path.name  # without the folder: a resumed run has an absolute path, and prints the same
        tell_unread(path, {"validation": sizes["validation"]})
        if "test" in rows:
            name += f" and {beside.name}"
    elif is_hub_id(source):
        name, found = hub_rows(source)
        if "train" not in found:
            raise UserError(
                f"{name} has no split 'train' (it has: {', '.join(found)}); use one that has, or a JSONL file"
            )
        rows = {split: read(each) for split, each in found.items() if split in PARTS}
    else:
        check_no_folder(source)
        given = source if len(source) <= 80 else f"{source[:77]}..."
        raise UserError(f"env.source={given!r} is not a source; allowed are {allowed}")
    rows = _of_all_columns(rows)
    problems = _split(rows, sizes)
    _tell_shared(rows, problems, name)
    _tell_repeated(problems, name)
    return problems, f"{name} ({counted(problems, rows)})"


def counted(problems: Mapping[str, Sequence[Problem]], given: Mapping[str, Sequence[Problem]] | None = None) -> str:
    """The number of problems in each split, as text; of a split that is given, and has more, also that of its rows."""
    held = {split: len(rows) for split, rows in (given or {}).items() if split != "train"}

    def size(split: str, count: int) -> str:
        return f"{count:,} of {held[split]:,}" if held.get(split, 0) > count else f"{count:,}"

    return ", ".join(f"{size(split, len(rows))} {split}" for split, rows in problems.items())


def _of_all_columns(rows: Mapping[str, Sequence[Problem]]) -> dict[str, list[Problem]]:
    """The problems, each with the columns of all: None for one that its row lacks.

    A reward may name a column that few rows have, and is also called for problems of which none has it.
    """
    names = dict.fromkeys(name for found in rows.values() for problem in found for name in problem.columns)

    def whole(problem: Problem) -> Problem:
        if len(problem.columns) == len(names):
            return problem
        return replace(problem, columns={**dict.fromkeys(names), **problem.columns})

    return {split: [whole(problem) for problem in found] for split, found in rows.items()}


def _split(rows: dict[str, list[Problem]], asked: Mapping[str, int]) -> dict[str, list[Problem]]:
    """Hold out by a hash of the question, so that splits do not depend on the order of the rows."""
    train = rows["train"]
    most = max(1, len(train) // 10)
    wanted = {split: min(size, most) for split, size in asked.items() if split not in rows}
    problems: dict[str, list[Problem]] = {"train": [], "validation": [], "test": []}
    for split, problem in zip(hold_out([problem.question for problem in train], wanted), train, strict=True):
        problems[split].append(problem)
    for split, size in asked.items():
        if split in rows:
            problems[split] = rows[split][:size]
    return problems


def _tell_shared(rows: dict[str, list[Problem]], problems: dict[str, list[Problem]], name: str) -> None:
    """Warn in one line if a given split contains questions of the train split."""
    trained = {problem.question for problem in rows["train"]}
    for split in rows.keys() & {"validation", "test"}:
        questions = {problem.question for problem in problems[split]}
        if shared := len(questions & trained):
            warn(
                f"{name}: {shared:,} of {len(questions):,} {split} questions are in the train split, too, so {split} "
                "measures what was trained on: take them out of one of the two"
            )


def _tell_repeated(problems: Mapping[str, Sequence[Problem]], name: str) -> None:
    """Warn in one line if over a tenth of the rows of a held-out split repeat a question.

    Greedy answers to one question are equal, and the interval of the score takes each row for one more problem.
    """
    for split in ("validation", "test"):
        count, different = len(problems[split]), len({problem.question for problem in problems[split]})
        if 10 * different < 9 * count:
            warn(
                f"{name}: {count:,} {split} rows hold {different:,} different questions, and each row counts as a "
                "problem, so the intervals are too narrow: keep one row of each question"
            )


def mark(rows: Mapping[str, Sequence[object]]) -> str:
    """A fingerprint of all rows, split by split.

    Of what JSON lacks, such as a picture, only the type counts; and of a row that holds itself, or a huge number.
    Dates, times, decimals and bytes, which a dataset on the hub may hold, count by their value.
    """
    digest = hashlib.blake2b(digest_size=16)
    for split, found in rows.items():
        for row in (split, *found):
            try:
                line = json.dumps(row, default=_for_json, skipkeys=True)
            except (ValueError, RecursionError):
                line = type(row).__name__
            digest.update(line.encode())
    return digest.hexdigest()


def _for_json(x: object) -> object:
    if is_dataclass(x):
        return [getattr(x, field.name) for field in fields(x)]
    if isinstance(x, VALUES):
        return [type(x).__name__, repr(x)]
    return dict(x) if isinstance(x, Mapping) else type(x).__name__
