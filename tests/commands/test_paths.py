"""Paths that can be none: of a user who is not here, or too long for any disk. Every command answers in one line."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlkit import compare, evaluate, play, run
from rlkit.paths import home

LONG = "a" * 300
TABLE = ["algo=q_learning", "env=gridworld", "algo.steps=4", "iterations=1", "evaluation_episodes=1"]
CART = ["algo=ppo", "env=cartpole", "algo.horizon=8", "algo.minibatches=1", "env.rows=2", "iterations=1"]


def test_a_home_is_found_and_what_has_none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/there")
    assert home("~/x") == Path("/there/x")
    for path in ("~nobody-here/x", "~\0", "~\ud800", "x/~", "a" * 5000):
        assert str(home(path)) == path


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "cart"
    assert run.main([*CART, "evaluation_episodes=1", "validation_episodes=1", f"out={folder}"]) == 0
    return folder


@pytest.mark.parametrize(
    ("main", "words", "says"),
    [
        (run.main, [*TABLE, "out=~nobody-here/r"], "cannot write to the folder ~nobody-here/r: there is no such user"),
        *((run.main, [f"algo={path}.py", "env=cartpole"], "no algorithm file") for path in ("~nobody-here/x", LONG)),
        (run.main, ["algo=ppo", f"env=./{LONG}.py"], "no environment file"),
        *((run.main, [f"resume={path}/x"], "") for path in ("~nobody-here", LONG)),
        (compare.main, [*TABLE, "seed=0", "out=~nobody-here/c"], "cannot write to the folder ~nobody-here/c"),
        (compare.main, ["algo=~nobody-here/x.py", "env=cartpole"], "no algorithm file"),
        *((compare.main, [path, "out=c"], "no finished run") for path in ("~nobody-here/x", LONG)),
        *((play.main, [path], "") for path in ("~nobody-here/x", LONG, f"{LONG}/x", "env=~nobody-here/x.py")),
        *((evaluate.main, [path], "which run?") for path in ("~nobody-here=3", "a=" * 200)),
        *((evaluate.main, [path], "") for path in ("~nobody-here", LONG)),
    ],
)
def test_a_path_that_can_be_none_is_one_line(
    main: Callable[[list[str]], int],
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr().err
    assert says in told and "Traceback" not in told
    assert not (tmp_path / "~nobody-here").exists()


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("video=~nobody-here/x.gif", "there is no folder ~nobody-here"),
        (f"video={LONG}/x.gif", "there is no folder"),
        (f"video={LONG}.gif", "file name too long"),
        ("against=~nobody-here:best", "is not a run folder"),
        (f"against={LONG}:best", "file name too long"),
    ],
)
def test_so_is_one_among_the_keys_of_an_evaluation(
    word: str, says: str, cart: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main([os.fspath(cart), "episodes=1", word]) == 2
    assert says in capsys.readouterr().err
