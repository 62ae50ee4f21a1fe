"""A run goes on with the data that it began with, also where they come from no file."""

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from rlkit import run
from rlkit.text import TextEnv, splits
from rlkit.text.asking import Asking
from rlkit.text.problems import Problem

WORDS = ["algo=grpo", "env=gsm8k", "env.source=a/b", "env.rows=2", "algo.group=2", "env.max_tokens=4"]
WORDS += ["evaluation_episodes=2", "iterations=2", "checkpoint_every=1"]


class Hub:
    """Stands in for the library `datasets`, with questions from `first` on."""

    def __init__(self, first: int) -> None:
        self.first = first

    def get_dataset_config_names(self, name: str) -> list[str]:
        return ["main"]

    def load_dataset(self, name: str, configuration: str) -> dict[str, list[dict[str, str]]]:
        numbers = range(self.first, self.first + 40)
        return {"train": [{"question": f"1 + {n} = ?", "answer": f"#### {n + 1}"} for n in numbers]}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda first: monkeypatch.setitem(sys.modules, "datasets", Hub(first))


def test_a_dataset_of_the_hub_that_has_changed_is_refused(
    tmp_path: Path, hub: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    hub(1)
    assert run.main([*WORDS, f"out={folder}"]) == 0
    hub(2)
    again = [f"resume={folder}", "iterations=4"]
    assert run.main(again) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("rlkit: hub dataset a/b (32 train, 4 validation")
    assert f"has other rows than when {folder} began, as a new version of a dataset " in told
    before = (folder / "before.json").read_text()
    (folder / "before.json").unlink()
    assert run.main(again) == 2 and not (folder / "before.json").exists(), "it would be that of the other rows"
    hub(1)
    assert run.main(again) == 0
    assert (folder / "before.json").read_text() == before
    hub(2)
    assert run.main([f"resume={folder}", "iterations=6", "trust=changed"]) == 0
    assert run.main([f"resume={folder}", "iterations=8"]) == 0, "from then on it is its data"


@pytest.mark.parametrize("own", ["mark = 'X'", "def mark(self, board): return board"])
def test_an_environment_of_ones_own_may_call_anything_a_mark(tmp_path: Path, own: str) -> None:
    (tmp_path / "board.py").write_text(
        "from dataclasses import dataclass\nimport gymnasium\nfrom rlkit.control import ControlEnv\n"
        f"@dataclass(frozen=True)\nclass Config:\n    rows: int = 2\nclass Board(ControlEnv):\n    {own}\n"
        "def make(config, seed, device):\n"
        "    return Board(lambda n: gymnasium.make_vec('CartPole-v1', n), config.rows, seed, device)\n"
    )
    words = ["algo=reinforce", f"env={tmp_path / 'board.py'}", "iterations=1", "evaluation_episodes=2"]
    assert run.main([*words, f"out={tmp_path / 'r'}"]) == 0


class Picture:
    """Has another `repr` in each process."""


def test_a_mark_of_rows_is_the_same_at_each_reading() -> None:
    def mark(*columns: dict[str, object]) -> str:
        return splits.mark({"train": [Problem("1 + 1?", "#### 2", "sum", column) for column in columns]})

    assert mark({"image": Picture()}) == mark({"image": Picture()}), "of what JSON lacks, the type counts"
    inside: list[object] = []
    inside.append(inside)
    assert mark({"parts": inside, "factorial": 10**5000}), "what JSON cannot write does not end the run"
    now = datetime(2026, 1, 1)
    values = [now, now + timedelta(9), now.date(), timedelta(1), timedelta(2), Decimal(1), Decimal(2), b"a", b"b"]
    assert len({mark({"when": x}) for x in values}) == len(values), "those that a dataset on the hub may hold"
    different = [mark({"level": 1}), mark({"level": 2}), mark({"level": 1}, {"level": 1}), mark({"nested": {"a": [1]}})]
    assert len(set(different)) == len(different)


def test_a_worked_example_of_each_prompt_is_data_too() -> None:
    def mark(answer: str) -> str:
        problems = {"train": [Problem("1 + 1?", "#### 2")], "validation": [], "test": []}
        return TextEnv(problems, 1, 0, prompt=Asking(shots=(Problem("2 + 2?", answer),))).mark_of_data()

    assert mark("#### 4") == mark("#### 4") != mark("4")
