"""Code of the user's own: where it may lie, and what it may raise."""

import sys
from pathlib import Path

import pytest

from rlkit import run
from rlkit.named import named
from rlkit.progress import Progress
from rlkit.settings import config
from rlkit.telling import facts


def test_a_run_of_a_module_in_packages_without_init_goes_on_in_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "a_space" / "sub" / "mine.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'canary')!r}).touch()\n"
        + "from rlkit.algorithms.q_learning import Config, make\n"
    )
    folder = tmp_path / "run"
    assert (
        run.main(["algo=a_space.sub.mine", "env=gridworld", "iterations=1", "evaluation_episodes=2", f"out={folder}"])
        == 0
    )

    def forgotten(*words: str) -> str:
        for name in [name for name in sys.modules if name.startswith("a_space")]:
            del sys.modules[name]
        (tmp_path / "canary").unlink(missing_ok=True)
        capsys.readouterr()
        assert run.main([f"resume={folder}", "iterations=2", *words]) == (0 if words else 2)
        return capsys.readouterr().err

    assert "would run code from outside rlkit: algo=a_space.sub.mine; trust=true" in forgotten()
    assert not (tmp_path / "canary").exists()
    forgotten("trust=true")
    assert (tmp_path / "canary").exists()


def test_what_code_of_ones_own_raises_may_be_an_exception_without_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = "class Bad({}):\n    def __str__(self): raise ValueError\n"
    (tmp_path / "mine.py").write_text(bad.format("RuntimeError") + "raise Bad\n")
    assert run.main([f"algo={tmp_path}/mine.py", "env=cartpole"]) == 1
    assert "exception str() failed" in capsys.readouterr().err.splitlines()[-1]
    (tmp_path / "its.py").write_text(
        bad.format("ValueError") + "from dataclasses import dataclass\nfrom rlkit.algorithms.ppo import make\n"
        "@dataclass(frozen=True)\nclass Config:\n    def __post_init__(self): raise Bad\n"
    )
    assert run.main([f"algo={tmp_path}/its.py", "env=cartpole"]) == 2
    assert capsys.readouterr().err == "rlkit: algo: a Bad that cannot be shown\n"


NAMED = {  # where code of your own is named, with a module and a name in place of {}
    "game": "algo=grpo env=game env.game={}:f",
    "reward": "algo=grpo env=gsm8k env.reward={}:f",
    "metric": "algo=grpo env=gsm8k env.metrics={}:f",
    "judge": "algo=dpo env=gsm8k env.judge={}:f",
    "tool": "algo=grpo env=gsm8k env.tool={}:f",
    "algorithm": "algo={} env=gsm8k",
    "environment": "algo=grpo env={}",
}
NO_MODULE = {
    "def f(:\n": "SyntaxError: invalid syntax ({}, line 1)",
    "def f():\n  x = 1\n   y = 2\n": "IndentationError: unexpected indent ({}, line 3)",
    "x = 1\0\n": "SyntaxError: source code string cannot contain null bytes ({})",
    "import sys\n\nsys.exit(0)\n": "SystemExit: 0 ({}, line 3)",
    "raise SystemExit\n": "SystemExit: nothing more ({}, line 1)",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("text", NO_MODULE)
@pytest.mark.parametrize("kind", NAMED)
def test_a_file_that_is_no_python_or_ends_the_program_is_one_line(
    kind: str, text: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "broken.py").write_text(text)
    assert run.main([*NAMED[kind].format("./broken.py").split(), "out=run"]) == 2
    said = capsys.readouterr().err
    assert said == f"rlkit: {place / 'broken.py'} cannot be imported: {NO_MODULE[text].format('broken.py')}; fix it\n"
    assert not (place / "run").exists()


@pytest.mark.parametrize("text", [text for text in NO_MODULE if "\0" not in text])
@pytest.mark.parametrize("given", ["./whole.py", "whole"])
def test_a_neighbor_that_is_no_python_or_ends_the_program_is_one_line(
    given: str, text: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "whole.py").write_text(f"from {'.' * given.startswith('.')}neighbor import f\n")
    (place / "neighbor.py").write_text(text)
    assert run.main(NAMED["game"].format(given).split()) == 2
    said = capsys.readouterr().err
    assert NO_MODULE[text].format("neighbor.py") + "; fix it\n" in said and said.count("\n") == 1
    sys.modules.pop("neighbor", None)


def test_a_module_may_go_on_without_a_neighbor_that_is_no_python(place: Path) -> None:
    (place / "careful.py").write_text(
        "try:\n    from .torn import f\nexcept SyntaxError:\n    def f():\n        return 3\n"
    )
    (place / "torn.py").write_text("def f(:\n")
    assert named("env.game", "./careful.py:f")() == 3


def test_what_a_file_raises_or_compiles_itself_is_an_error_of_its_own(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("1 / 0\n", "compile('def f(:', '<rules>', 'exec')\n"):
        (place / "own.py").write_text(text)
        assert run.main(NAMED["game"].format("./own.py").split()) == 1
        said = capsys.readouterr().err
        assert "Traceback" in said and text.strip() in said


def test_a_summary_names_a_file_as_config_yaml_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = config.Given(algo={"name": "./mine.py"}, env={"name": "my_pkg.maze"})
    monkeypatch.chdir("/")  # as an environment may
    told = facts(config.Run(), given, Progress())
    assert (told["algo"], told["env"]) == (str(tmp_path / "mine.py"), "my_pkg.maze")


def test_an_environment_that_leaves_out_the_seed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from rlkit.envs import cartpole\nConfig = cartpole.Config\n"
        "def make(config, seed, device):\n    return cartpole.make(config, 0, device)\n"
    )
    assert run.main(["algo=ppo", f"env={mine}", "seed=3", f"out={tmp_path / 'run'}"]) == 2
    told = capsys.readouterr().err
    assert told == f"rlkit: env={mine} has the seed 0 in place of 3: hand on the seed that make gets\n"
    assert not (tmp_path / "run").exists()
