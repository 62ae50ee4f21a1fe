"""What a command says first, and the console script: rlkit run ..., rlkit list, python -m rlkit."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rlkit
from rlkit import __main__ as script

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("run", "evaluate", "compare", "play", "new")
FIRST = """if True:
    import sys

    class Screen:
        encoding = "utf-8"

        def write(self, text):
            heavy = {"torch", "numpy", "gymnasium", "pydantic", "rich", "yaml"} & sys.modules.keys()
            sys.exit(f"{text}, and before it: {sorted(heavy)}")

        def flush(self):
            pass

    sys.stdout = Screen()
    from rlkit.MODULE import main
    main(WORDS)
"""


def python(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)


CASES = [
    ("run", ["algo=ppo", "env=cartpole"]),
    ("run", ["algo=dqm", "env=cartpole"]),
    ("run", ["--help"]),
    ("evaluate", ["nowhere"]),
    ("compare", ["algo=ppo", "wrokers=2"]),
    ("play", ["--help"]),
    ("new", ["algo", "mine"]),
    ("__main__", ["run", "algo=ppo", "env=cartpole"]),
    ("__main__", ["rnu"]),
    ("__main__", ["list"]),
    ("__main__", []),
]


@pytest.mark.parametrize(("module", "words"), CASES, ids=str)
def test_the_first_line_comes_before_anything_heavy_is_imported(module: str, words: list[str]) -> None:
    done = python("-c", FIRST.replace("MODULE", module).replace("WORDS", repr(words)))
    assert done.stderr == f"rlkit {rlkit.__version__}, and before it: []\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_can_be_given_both_ways(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert importlib.import_module(f"rlkit.{name}").main(["--help"]) == 0
    assert capsys.readouterr().out == said and said.startswith(f"rlkit {rlkit.__version__}\n")


def test_python_dash_m_runs_it_from_anywhere(tmp_path: Path) -> None:
    words = ["algo=q_learning", "env=gridworld", "iterations=1", "evaluation_episodes=2", "out=r"]
    done = python("-m", "rlkit", "run", *words, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "r" / "summary.json").is_file(), done.stderr
    done = python("-m", "rlkit", "run", "algo=dqm", "env=cartpole", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == f"rlkit {rlkit.__version__}\n"
    assert done.stderr.startswith("rlkit: no algorithm 'dqm': did you mean dqn?") and done.stderr.count("\n") == 1


def test_the_console_script_is_this_function_and_imports_plug_ins_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"rlkit": "rlkit.__main__:main"}
    (tmp_path / "my_console_pkg.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    monkeypatch.setattr(sys, "argv", ["/usr/bin/rlkit", "run", "algo=my_console_pkg.none", "env=cartpole"])
    assert script.main() == 2
    assert "there is no module 'my_console_pkg.none' here" in capsys.readouterr().err, "not my_console_pkg"


def test_list_names_every_plug_in_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["list"]) == 0
    said = capsys.readouterr().out
    for name, about in {**rlkit.list_algorithms(), **rlkit.list_environments()}.items():
        assert about and f"\n  {name} " in said
    assert "Proximal policy optimisation" in said and max(map(len, said.splitlines())) <= 100


def test_help_version_and_a_typo(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--version"]) == 0
    assert capsys.readouterr().out == f"rlkit {rlkit.__version__}\n"
    for words in ([], ["--help"], ["-h"]):
        assert script.main(words) == 0
        said = capsys.readouterr().out
        assert all(f"\n    {name} " in said for name in (*COMMANDS, "list"))
    for words, says in ((["rnu"], "no command 'rnu': did you mean run?"), (["list", "algos"], "'algos'")):
        assert script.main(words) == 2
        error = capsys.readouterr().err
        assert says in error and error.count("\n") == 1
