"""The scripts in examples/ run, and say what they are for."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import python

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["evaluation_episodes=4", "validation_episodes=4"]
RUN: dict[str, tuple[list[str], list[str]]] = {  # a small budget, and what is printed at the end
    "cartpole": (["env_steps=1000", *SMALL], ["this episode: ", "100 episodes: "]),
    "tiny_language_model": (["iterations=1", "env.rows=4", *SMALL], ["drawn: ", "greedily: ", "solved: "]),
    "comparison": (["env_steps=500", "workers=2", "evaluations=0", *SMALL], ["q_learning ", "sarsa ", "the page: "]),
}
LEARNED: dict[str, Callable[[str], bool]] = {
    "cartpole": lambda said: "100 episodes: 500" in said,  # stop_and_resume trains the same
    "own_environment": lambda said: "[1 1 1 1 1 1 1 1 1 1]" in said,
    "own_network": lambda said: float(said.rpartition("100 episodes: ")[2]) > 0.9,
    "own_spaces": lambda said: "belt and speed of a light parcel: [2 1]" in said,
    "own_wrapper": lambda said: float(said.rpartition("of 500: ")[2]) > 100,
    "stop_and_resume": lambda said: (
        said.count(" steps at ") == 2 and " steps at 500" in said and "steps  return" in said
    ),
}


def example(name: str, words: list[str], folder: Path) -> str:
    done = python(folder, str(ROOT / "examples" / f"{name}.py"), *words)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


def test_each_is_short() -> None:
    scripts = {path.stem: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    assert scripts.keys() == RUN.keys() | LEARNED.keys() | {"own_memory"}  # which tests/policies/test_recurrent.py runs
    for name, text in scripts.items():
        assert len(text.splitlines()) <= 30 and f"python examples/{name}.py" in text
        assert "\nimport rlkit\n" in text and "from rlkit" not in text, "the Python API is enough"


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_it_runs(name: str, tmp_path: Path) -> None:
    words, says = RUN[name]
    said = example(name, words, tmp_path)
    assert [piece for piece in says if piece not in said] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("cartpole", marks=pytest.mark.campaign), *list(LEARNED)[1:]])
def test_they_learn_what_they_show(name: str, tmp_path: Path) -> None:
    said = example(name, SMALL, tmp_path)
    assert LEARNED[name](said), said
