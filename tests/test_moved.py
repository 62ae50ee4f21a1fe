"""The module names of 0.3.0 are found under their new names, and say so."""

import importlib
import subprocess
import sys
import warnings

import pytest

from rlkit._moved import MOVED


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_name_is_the_same_module(old: str, new: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert importlib.import_module(old) is importlib.import_module(new)
    assert importlib.import_module(new).__name__ == new


@pytest.mark.slow
def test_code_of_0_3_0_still_imports_and_is_told_once() -> None:
    code = """if True:
        import warnings
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            from rlkit import plugins, tables
            from rlkit.tabular import TabularEnv
            from rlkit.batched import Batched
            import rlkit.config
            from rlkit.tabular import from_outcomes
            from rlkit.control import ControlEnv
            from rlkit.text import PROMPT, TextEnv
            from rlkit.language.problems import Problem
        import rlkit.control.tabular
        assert TabularEnv is rlkit.control.tabular.TabularEnv
        for warning in told:
            assert warning.category is DeprecationWarning and warning.filename == "<string>", warning
            print(str(warning.message).split(" ")[0])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = ["plugins", "tables", "tabular", "batched", "config", "language.problems"]
    assert done.stdout.split() == [f"rlkit.{name}" for name in names]


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rlkit.never")
