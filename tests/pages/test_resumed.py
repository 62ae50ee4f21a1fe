"""A page that stays open while its run is killed and resumed has every line of metrics.jsonl once."""

import json
import os
from pathlib import Path

import pytest

from rlkit.pages import runs
from rlkit.pages.server import Json
from rlkit.recording.writers import Lines, cut


class Page:
    """What run.js and home.js keep of a run's metrics."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.lines = folder, Json(), list[Json]()

    def look(self) -> object:
        """Ask for the lines that are new. Returns: the byte from which they were read."""
        got = runs.metrics(self.folder, {key: str(x) for key, x in self.asked.items()})
        lines = got["lines"]
        assert isinstance(lines, list)
        self.lines = lines if got["from"] == 0 else self.lines + lines
        self.asked = {"file": got["file"], "offset": got["offset"]}
        return got["from"]


def add(folder: Path, first: int, last: int, second: float) -> None:
    lines = Lines(folder / "metrics.jsonl")
    for i in range(first, last + 1):
        lines.add({"iteration": i, "seconds": second * i})
    lines.close()


def test_a_page_has_every_line_after_two_kills_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk gives the new file the number of the first one, and its first line is the same."""
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result((*real(file)[:1], 7, *real(file)[2:])))
    page, path = Page(tmp_path), tmp_path / "metrics.jsonl"
    add(tmp_path, 1, 200, 1.2345678)
    assert page.look() == 0 and len(page.lines) == 200
    for second in (1.2345678, 1.0):
        cut(path, 10)
        add(tmp_path, 11, 200, second)
    add(tmp_path, 201, 230, 1.0)
    assert page.look() == 0, "the lines are read on from a byte of the former file"
    assert page.lines == [json.loads(line) for line in path.read_text().splitlines()] and len(page.lines) == 230
    add(tmp_path, 231, 240, 1.0)
    assert page.look() != 0 and [line["iteration"] for line in page.lines] == list(range(1, 241))


def test_a_file_that_is_shorter_than_what_was_read_is_read_from_its_beginning(tmp_path: Path) -> None:
    page = Page(tmp_path)
    add(tmp_path, 1, 20, 1.5)
    page.look()
    os.truncate(tmp_path / "metrics.jsonl", (tmp_path / "metrics.jsonl").read_bytes().index(b"\n") + 1)
    assert page.look() == 0 and len(page.lines) == 1


@pytest.mark.parametrize("most", [100, 1000, 1 << 24])
def test_a_file_in_parts_is_read_on(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MOST", most)
    page = Page(tmp_path)
    add(tmp_path, 1, 100, 1.5)
    starts = [page.look() for _ in range(100)]
    assert starts.count(0) == 1, "it was read from its beginning again"
    assert [line["iteration"] for line in page.lines] == list(range(1, 101))
