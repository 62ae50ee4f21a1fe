"""A reward or an environment may change the directory; a run, an evaluation and a comparison stay where they began."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import rlkit
from rlkit import __main__ as rlkit_command
from rlkit import compare, evaluate, run

LEAVES = """
import os
from dataclasses import dataclass
import gymnasium
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rlkit.control import ControlEnv

@dataclass(frozen=True)
class Config: ...

class Leaves(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space = action_space = Discrete(2)

    def reset(self, seed=None, options=None):
        return 0, {}

    def step(self, action):
        os.chdir(os.environ["AWAY"])
        return 0, 0.0, True, False, {}

    def render(self):
        import numpy as np
        return np.zeros((8, 8, 3), dtype=np.uint8)

def make(config, seed, device):
    copies = lambda n: SyncVectorEnv([Leaves] * n, autoreset_mode=AutoresetMode.DISABLED)
    return ControlEnv(copies, 2, seed, device, "leaves", evaluation_copies=1)
"""
AT_ONCE = LEAVES.replace("    copies =", "    os.chdir(os.environ['AWAY'])\n    copies =")  # as it is made, too
REWARD = """
import os

def away(prompts, completions, **columns):
    os.chdir(os.environ["AWAY"])
    return [float(len(text) % 3) for text in completions]
"""
TABLE = ["algo=q_learning", "algo.steps=4", "evaluation_episodes=1", "validation_episodes=1", "checkpoint_every=1"]
TEXT = ["algo=grpo", "env=gsm8k", "env.reward=./r.py:away", "env.rows=1", "algo.group=2", "env.max_tokens=4"]
TEXT += ["env.train=8", "env.test=1", "env.validation=0", "evaluate_every=0", "checkpoint_every=1", "threads=1"]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where the commands are given, and where the code goes."""
    here, away = tmp_path / "here", tmp_path / "away"
    for folder in (here, away):
        folder.mkdir()
    (here / "leaves.py").write_text(LEAVES)
    (here / "at_once.py").write_text(AT_ONCE)
    (here / "r.py").write_text(REWARD)
    monkeypatch.setenv("AWAY", str(away))
    monkeypatch.setenv("PYTHONPATH", str(Path(rlkit.__file__).resolve().parents[1]))
    monkeypatch.chdir(here)
    return here, away


@pytest.mark.parametrize(
    "words",
    [[*TABLE, "env=./leaves.py"], [*TABLE, "env=./at_once.py"], TEXT],
    ids=["environment", "environment as it is made", "reward"],
)
def test_a_run_stays_in_the_folder_where_it_began(
    words: list[str],
    places: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here, away = places
    assert run.main([*words, "iterations=2", "out=r"]) == 0
    assert json.loads((here / "r" / "summary.json").read_text())["iterations"] == 2
    assert (here / "r" / "checkpoints" / "latest.safetensors").is_file() and not list(away.iterdir())
    told = capsys.readouterr().out
    assert "\nrun folder: r\n" in told and "python -m rlkit.play r trust=true\n" in told
    held = yaml.safe_load((here / "r" / "config.yaml").read_text())
    own = held["env"]["reward"].partition(":")[0] if "reward" in held["env"] else held["env"]["name"]
    assert own in (str(here / "r.py"), str(here / "leaves.py"), str(here / "at_once.py"))
    monkeypatch.chdir(here)
    assert run.main(["resume=r", "iterations=3", "trust=true"]) == 0
    assert json.loads((here / "r" / "summary.json").read_text())["iterations"] == 3 and not list(away.iterdir())
    monkeypatch.chdir(here)
    assert run.main([*words, "iterations=2", "out=r"]) == 2
    assert "out=r is not empty: " in capsys.readouterr().err


def test_an_error_while_a_run_goes_on_names_the_folder_as_it_was_written(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (places[0] / "r.py").write_text(REWARD.replace("return", "return 1 / 0 #"))
    assert run.main([*TEXT, "iterations=1", "out=r"]) == 2
    assert capsys.readouterr().err.endswith("then resume with: python -m rlkit.run resume=r trust=changed\n")


@pytest.mark.parametrize("name", ["leaves", "at_once"])
def test_an_evaluation_and_its_picture_are_where_they_were_asked_for(
    name: str, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, away = places
    assert run.main([*TABLE, f"env=./{name}.py", "iterations=1", "out=r"]) == 0
    monkeypatch.chdir(here)
    assert evaluate.main(["r", "episodes=1", "trust=true", "video=x.gif", "against=r:latest"]) == 0
    assert "the first episode is in x.gif\n" in capsys.readouterr().out
    assert (here / "r" / "evaluation-test.json").is_file() and (here / "x.gif").is_file() and not list(away.iterdir())


@pytest.mark.slow
def test_a_comparison_is_where_it_was_asked_for(places: tuple[Path, Path]) -> None:
    here, away = places
    (here / "leaves.py").write_text(AT_ONCE)
    assert compare.main([*TABLE[:4], f"env={here / 'leaves.py'}", "iterations=1", "seed=0", "out=c", "workers=1"]) == 0
    assert (here / "c" / "results.json").is_file() and not list(away.iterdir())


def test_a_run_from_python_knows_its_folder(places: tuple[Path, Path]) -> None:
    keys = dict(word.split("=") for word in TABLE[1:])
    (places[0] / "leaves.py").write_text(AT_ONCE)
    done = rlkit.train("q_learning", str(places[0] / "leaves.py"), out="r", iterations=1, quiet=True, **keys)
    assert done.folder == places[0] / "r" and done.summary is not None


def test_an_evaluation_from_python_is_where_it_was_asked_for(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, away = places
    assert run.main([*TABLE, "env=./at_once.py", "iterations=1", "out=r"]) == 0
    monkeypatch.chdir(here)
    opened = rlkit.load("r", trust=True, checkpoint="latest")
    monkeypatch.chdir(here)
    assert opened.evaluate(episodes=1, video="x.gif", against="r:latest")["against"]["folder"] == "r"
    assert (here / "x.gif").is_file() and not list(away.iterdir())


@pytest.mark.parametrize("command", [rlkit_command.main, lambda words: run.main(words[1:])])
def test_a_folder_that_was_deleted_is_one_line(
    command: Callable[[list[str]], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert command(["run", "algo=q_learning", "env=gridworld", f"out={tmp_path / 'r'}"]) == 2
    assert capsys.readouterr().err == "rlkit: the current folder was deleted: change to another one\n"
