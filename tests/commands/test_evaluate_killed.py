"""python -m rlkit.evaluate, killed while it writes: the answers beside a measurement are never those of another one."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlkit import evaluate, run

KEYS = ["algo=grpo", "env=gsm8k", "env.rows=2", "env.test=8", "env.validation=4", "iterations=1", "threads=1"]
NAMES = ("evaluation-test.json", "completions-test.jsonl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert run.main([*KEYS, f"out={tmp_path / 'run'}"]) == 0
    return tmp_path / "run"


def evaluated(folder: Path, episodes: int) -> int:
    return evaluate.main([str(folder), "threads=1", f"episodes={episodes}"])


def held(folder: Path, report: str, answers: str) -> tuple[int, int | None]:
    """Of how many problems the measurement is, and how many answers there are; None: no file."""
    path = folder / answers
    lines = len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else None
    return json.loads((folder / report).read_text())["greedy"]["episodes"], lines


def killed_at(which: int, end: type[BaseException]) -> Callable[[str | Path, str | Path], None]:
    """In place of os.replace: one that ends the process at the `which`-th file."""
    calls, real = iter(range(1, 99)), os.replace

    def replace(new: str | Path, path: str | Path) -> None:
        if next(calls) == which:
            raise end
        real(new, path)

    return replace


@pytest.mark.parametrize("end", [KeyboardInterrupt, OSError])
def test_the_answers_are_never_those_of_another_evaluation(
    end: type[BaseException], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaluated(folder, 6) == 0 and held(folder, *NAMES) == (6, 6)
    for which, left in ((1, (6, None)), (2, (3, None))):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed_at(which, end))
            assert evaluated(folder, 3) != 0
        assert held(folder, *NAMES) == left
        assert evaluated(folder, 6) == 0 and held(folder, *NAMES) == (6, 6)


def test_a_link_in_the_place_of_the_answers_leaves_the_measurement(folder: Path) -> None:
    assert evaluated(folder, 6) == 0
    (folder / NAMES[1]).rename(folder / "mine")
    (folder / NAMES[1]).symlink_to(folder / "mine")
    assert evaluated(folder, 3) != 0 and held(folder, *NAMES) == (6, 6)


def test_a_renamed_evaluation_takes_the_place_of_an_older_one_with_its_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another checkpoint was measured here, before `measure` of the run changed."""
    assert evaluated(folder, 6) == 0
    found = json.loads((folder / NAMES[0]).read_text())
    (folder / NAMES[0]).write_text(json.dumps(found | {"checkpoint": "best"}))
    (folder / "completions-test-best.jsonl").write_text("{}\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed_at(2, KeyboardInterrupt))
        assert evaluated(folder, 3) != 0
    assert held(folder, "evaluation-test-best.json", "completions-test-best.jsonl") == (6, None)
    assert evaluated(folder, 3) == 0 and held(folder, *NAMES) == (3, 3)
