"""The templates become files that run at once, keep the house's style, and pass their own tests."""

import json
import os
from pathlib import Path
from typing import IO

import pytest
from support.processes import python

from rlkit import evaluate, run, scaffold
from rlkit.new import main
from rlkit.scaffold import COMMANDS

NAMES = {"algo": "climber", "env": "hill", "reward": "shape", "task": "puzzle"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One plug-in of each kind."""
    folder = tmp_path_factory.mktemp("project")
    for kind, name in NAMES.items():
        assert main([kind, name, f"out={folder}"]) == 0
    return folder


def test_each_kind_is_written_with_its_test_in_less_than_60_lines(project: Path) -> None:
    names = {f"{stem}.py" for name in NAMES.values() for stem in (name, f"test_{name}")}
    assert {path.name for path in project.glob("*.py")} == names
    assert len((project / "puzzle.jsonl").read_text(encoding="utf-8").splitlines()) == 3
    for path in project.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 60
        assert not any(f"my_{kind}" in text for kind in NAMES)


@pytest.mark.slow
def test_their_own_tests_pass(project: Path) -> None:
    done = python(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sorted(map(str, project.glob("test_*.py"))))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 passed" in done.stdout


@pytest.mark.parametrize("command", [["check", "--select=E,F,UP,B,SIM,RUF"], ["format", "--check"]])
def test_they_keep_the_style(project: Path, command: list[str]) -> None:
    pytest.importorskip("ruff")
    ignored = ["--config", "lint.ignore=['RUF001','RUF002','RUF003']"] if command[0] == "check" else []
    done = python(project, "-m", "ruff", *command, "--isolated", "--line-length=120", *ignored, ".")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.campaign  # tests/python/test_typing.py checks what is written, and stricter
def test_types_are_right(project: Path) -> None:
    pytest.importorskip("mypy")
    options = ["--check-untyped-defs", "--ignore-missing-imports", "--follow-imports=silent", "--cache-dir", os.devnull]
    done = python(project, "-m", "mypy", *options, *(f"{name}.py" for name in NAMES.values()))
    assert "Success" in done.stdout, done.stdout + done.stderr


def test_what_to_do_next_is_printed_with_the_paths_as_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["algo", "climber"]) == 0
    out = capsys.readouterr().out
    assert "python -m rlkit.run algo=./climber.py env=cartpole" in out and "pytest test_climber.py" in out
    assert main(["reward", "shape", "out=my rewards"]) == 0
    out = capsys.readouterr().out
    assert "env.reward=correct,'my rewards/shape.py':shape" in out and "pytest 'my rewards/test_shape.py'" in out
    assert main(["task", "puzzle", "out=my tasks"]) == 0
    out = capsys.readouterr().out
    assert "wrote my tasks/puzzle.py, its rows and its test" in out
    assert "env.source='my tasks/puzzle.jsonl' env.reward='my tasks/puzzle.py':puzzle" in out
    assert main(["task", "puzzle", "out=MY_NAME/ROWS"]) == 0
    assert "env.source=MY_NAME/ROWS/puzzle.jsonl env.reward=MY_NAME/ROWS/puzzle.py:puzzle " in capsys.readouterr().out


TAKEN = {
    "task": ["result", "calculates", "float", "bool", "zip", "len", "text", "working", "answer", "Any"],
    "reward": ["form", "float", "marker", "print"],
}
WRITTEN = [*((kind, there) for kind in COMMANDS for there in ("mine.py", "test_mine.py")), ("task", "mine.jsonl")]


@pytest.mark.parametrize(("kind", "there"), WRITTEN)
def test_nothing_is_overwritten(kind: str, there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / there).write_text("precious")
    assert main([kind, "mine", f"out={tmp_path}"]) == 2
    assert "exists and is not overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [there] and (tmp_path / there).read_text() == "precious"


@pytest.mark.parametrize(("kind", "there"), WRITTEN)
def test_a_link_to_nothing_is_there_too(
    kind: str, there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / there).symlink_to("nowhere")
    assert main([kind, "mine", f"out={tmp_path}"]) == 2
    assert f"{there} exists and is not overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [there]


@pytest.mark.parametrize("kind", NAMES)
def test_the_name_that_the_docs_use_is_free(kind: str, tmp_path: Path) -> None:
    assert main([kind, f"my_{kind}", f"out={tmp_path}"]) == 0
    assert f"my_{kind}" in (tmp_path / f"my_{kind}.py").read_text()


@pytest.mark.parametrize(("kind", "length"), [("algo", 250), ("task", 250), ("task", 249)])
def test_all_files_are_written_or_none(
    kind: str, length: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([kind, "m" * length, f"out={tmp_path}"]) == 2  # with .py it fits into a folder, with test_ it does not
    said = capsys.readouterr().err
    assert said.startswith("rlkit: cannot write to ") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_no_part_that_would_be_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(path: Path, how: str, encoding: str) -> IO[str]:
        if path.name.startswith("test_"):
            raise KeyboardInterrupt
        return path.open(how, encoding=encoding)

    monkeypatch.setattr(scaffold, "open", stopped, raising=False)
    assert main(["env", "mine", f"out={tmp_path}"]) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words, told",
    [
        *((["task", name], f"'{name}' is a name that {name}.py uses itself, or Python") for name in TAKEN["task"]),
        *((["reward", name], f"'{name}' is a name that {name}.py uses itself") for name in TAKEN["reward"]),
        (["task", "ﬁne"], "'ﬁne' cannot be the name of a module: Python reads it as fine; give that"),
        (["algos", "mine"], "no kind 'algos': did you mean algo? There are: algo, env, reward, task"),
        (["algo"], "write: python -m rlkit.new algo|env|reward|task NAME"),
        (["algo", "mine", "yours"], "write: python -m rlkit.new algo|env|reward|task NAME"),
        (["algo", "mine", "ouut=."], "no key 'ouut': did you mean out?"),
        (["algo", "1st"], "'1st' cannot be the name of a module: use letters, digits and _"),
        (["algo", "my-algo"], "cannot be the name of a module"),
        (["algo", "conftest"], "cannot be the name of a module"),  # pytest would import it for the whole folder
        (["algo", "a.b"], "cannot be the name of a module"),
        (["algo", "../up"], "cannot be the name of a module"),
        (["algo", "class"], "cannot be the name of a module"),
        (["env", "json"], "'json' is a module already, which json.py would hide: choose another, such as my_json"),
        (["env", "sys"], "is a module already"),
        (["env", "torch"], "is a module already"),
        (["env", "rlkit"], "is a module already"),
        (["env", "ppo"], "'ppo' is an algorithm of rlkit: choose another name, such as my_ppo"),
        (["algo", "gsm8k"], "'gsm8k' is an environment of rlkit"),
        (["algo", "mine", "out=there.txt"], "cannot write to there.txt: a file is in the way"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.txt").touch()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.txt"]


def test_help_says_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"]):
        assert main(words) == 0
        assert "python -m rlkit.new algo|env|reward|task NAME [out=FOLDER]" in capsys.readouterr().out


# Plug-ins from anywhere, end to end

SHORT = ["iterations=2", "evaluation_episodes=2", "validation_episodes=2", "env.rows=2", "threads=1"]


@pytest.mark.parametrize("form", ["path", "dotted"])
def test_a_plug_in_from_anywhere_runs_resumes_and_is_evaluated(
    form: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path from any folder; by its dotted name where Python finds it. Either imports its neighbor."""
    package, other, out = tmp_path / f"pkg_of_{form}", tmp_path / "other", tmp_path / "run"
    package.mkdir(), other.mkdir()
    for name in ("climber", "hill"):
        text = (project / f"{name}.py").read_text(encoding="utf-8")
        text = text.replace("\n\n", "\n\nfrom .names import NAME\n", 1)
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    (package / "names.py").write_text("NAME = 'helper'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(package)
    names = ["./climber.py", "hill.py"] if form == "path" else [f"pkg_of_{form}.climber", f"pkg_of_{form}.hill"]
    assert run.main([f"algo={names[0]}", f"env={names[1]}", *SHORT, f"out={out}"]) == 0
    monkeypatch.chdir(other)
    assert run.main([f"resume={out}", "iterations=3", "trust=true"]) == 0
    assert json.loads((out / "summary.json").read_text())["iterations"] == 3
    assert evaluate.main([str(out), "episodes=2", "trust=true"]) == 0


@pytest.mark.parametrize("place", ["from dataclasses", "refuse_stored", "to_go = ", "clip, now = "])
def test_what_a_plug_in_raises_is_shown_with_its_traceback(
    place: str, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (project / "climber.py").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if place in line)
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace(line, f"{line[: len(line) - len(line.lstrip())]}1 / 0"), encoding="utf-8")
    assert run.main([f"algo={broken}", "env=cartpole", *SHORT, f"out={tmp_path / 'run'}"]) == 1
    told = capsys.readouterr().err
    assert "broken.py" in told and "1 / 0" in told and "ZeroDivisionError" in told


@pytest.mark.parametrize("word", [f"out={'x' * 260}", f"out={'d/' * 2100}"])
def test_a_folder_whose_name_is_too_long_is_one_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algo", "my_algo", word]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rlkit: cannot write to ") and said.count("\n") == 1


def test_a_home_of_nobody_is_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["algo", "my_algo", "out=~nobody_of_that_name"]) == 0
    assert (tmp_path / "~nobody_of_that_name" / "my_algo.py").is_file()
