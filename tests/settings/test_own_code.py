"""Code of the user's own: where it may lie, and what it may raise."""

import sys
from pathlib import Path

import pytest

from rlkit import run


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
