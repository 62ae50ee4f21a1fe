"""Code that was edited while a program goes on: what a run's marks name is what ran, or the run is refused."""

import importlib
import json
import os
import sys
import time
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import rlkit
from rlkit import outside
from rlkit.settings import places, plugins
from rlkit.text.rewards import load_rewards

PLUGIN = "from .helper import STEP\nfrom rlkit.algorithms.q_learning import Config, make\n"
SHORT = {"iterations": 1, "evaluation_episodes": 1, "quiet": True, "algo.steps": 4}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the user's own with a plug-in in two files; its name is another for each test."""
    folder = tmp_path / f"edited_{tmp_path.name}"
    folder.mkdir()
    for name, text in {"__init__": "", "mine": PLUGIN, "helper": "STEP = 1\n"}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def train(algo: object, out: Path) -> dict[str, str]:
    """The marks of a short run."""
    rlkit.train(algo, "gridworld", out=out, **SHORT)
    marks: dict[str, str] = yaml.safe_load((out / "config.yaml").read_text())["marks"]
    return marks


def test_an_edited_neighbor_of_a_file_runs_again(package: Path, tmp_path: Path) -> None:
    helper = package / "helper.py"
    before = train(package / "mine.py", tmp_path / "a")
    first = plugins.load("algorithms", str(package / "mine.py"))
    assert plugins.load("algorithms", str(package / "mine.py")) is first
    helper.write_text("STEP = 2\n")
    after = train(package / "mine.py", tmp_path / "b")
    ran = plugins.load("algorithms", str(package / "mine.py"))
    assert ran.STEP == 2 and first.STEP == 1
    assert before[str(helper)] != after[str(helper)] == places.mark(str(helper))


def test_a_neighbor_of_a_neighbor_runs_again_too(package: Path) -> None:
    (package / "helper.py").write_text("from .deeper import STEP\n")
    for step in (1, 2):
        (package / "deeper.py").write_text(f"STEP = {step}\n")
        assert step == plugins.load("algorithms", str(package / "mine.py")).STEP
    (package / "deeper.py").unlink()
    (package / "helper.py").write_text("STEP = 3\n")
    assert plugins.load("algorithms", str(package / "mine.py")).STEP == 3


def test_a_reward_file_has_neighbors_that_run_again_and_begins_anew(package: Path) -> None:
    file = package / "judge.py"
    file.write_text("from .helper import STEP\nseen = []\ndef f(): seen.append(STEP); return seen\n")
    assert load_rewards(f"{file}:f")[0]() == [1]
    assert load_rewards(f"{file}:f")[0]() == [1]
    (package / "helper.py").write_text("STEP = 2\n")
    assert load_rewards(f"{file}:f")[0]() == [2]


def test_each_run_runs_a_file_and_its_neighbors_anew(package: Path, tmp_path: Path) -> None:
    """A plug-in of one file, which a second one imports: both and the neighbor of both begin anew, and share it."""
    (package / "helper.py").write_text("STEP = []\n")
    (package / "mine.py").write_text(
        PLUGIN + "STEP.append(1)\nruns = [len(STEP)]\ndef late(): from .helper import STEP; "
    )
    with (package / "mine.py").open("a") as file:
        file.write("return STEP\n")
    (package / "world.py").write_text("from .helper import STEP\nfrom rlkit.envs.gridworld import Config, make\n")
    found = []
    for out in "ab":
        rlkit.train(package / "mine.py", str(package / "world.py"), out=tmp_path / out, **SHORT)
        found.append(plugins.load("algorithms", str(package / "mine.py")))
        assert plugins.load("envs", str(package / "world.py")).STEP is found[-1].STEP
    assert [ran.STEP for ran in found] == [[1], [1]] and [ran.runs for ran in found] == [[1], [1]]
    first, second = found
    assert first.late() is first.STEP and second.late() is second.STEP, "what ran before goes on with its neighbors"
    assert sys.modules[first.__name__] is first, "its classes are found by their module"


REWARD = (
    "from .helper import STEP\ndef f(completions, **columns): STEP.append(1); return [len(STEP)] * len(completions)\n"
)


@pytest.mark.slow
def test_runs_with_a_reward_file_that_counts_in_a_neighbor_are_equal(package: Path, tmp_path: Path) -> None:
    (package / "helper.py").write_text("STEP = []\n")
    (package / "judge.py").write_text(REWARD + "def g(completions, **columns): return f(completions)\n")
    keys = {
        "iterations": 1,
        "evaluation_episodes": 4,
        "quiet": True,
        "env.rows": 2,
        "algo.group": 2,
        "env.max_tokens": 4,
    }
    keys |= {"env.train": 20, "env.test": 4, "env.validation": 4}
    for out in "ab":
        rewards = ",".join(f"{package}/judge.py:{name}" for name in "fg")
        rlkit.train("grpo", "gsm8k", out=tmp_path / out, **keys, **{"env.reward": rewards})
        lines = (tmp_path / out / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[0])["rollout/return"] == 1 + 2, "both functions count in one neighbor, from nothing"


@pytest.mark.parametrize("files", [("v1.1", "v1_1"), ("v1_1", "v1.1"), ("a.py", ""), ("", "a.py")])
def test_files_whose_names_differ_in_one_character_are_two_modules(files: tuple[str, str], package: Path) -> None:
    (package / "1").mkdir()
    for number, name in enumerate(files):
        (package / f"{name}.py").write_text(PLUGIN + f"NUMBER = {number}\n")
    found = [plugins.load("algorithms", str(package / f"{name}.py")) for name in files]
    assert [module.NUMBER for module in found] == [0, 1]


@pytest.mark.parametrize("first", [0, 1])
def test_a_file_beside_a_package_of_its_name_is_what_was_named(first: int, package: Path) -> None:
    (package / "helper").mkdir()
    (package / "helper" / "__init__.py").write_text("STEP = 'package'\n")
    (package / "helper.py").write_text("STEP = 'file'\nfrom rlkit.algorithms.q_learning import Config, make\n")
    for name in (("mine", "helper"), ("helper", "mine"))[first]:
        step = plugins.load("algorithms", str(package / f"{name}.py")).STEP
        assert step == {"mine": "package", "helper": "file"}[name], "a neighbor is what Python takes for it"


@pytest.mark.parametrize("edited", ["mine", "helper", "__init__"])
def test_a_dotted_module_that_was_edited_is_refused(edited: str, package: Path, tmp_path: Path) -> None:
    name = f"{package.name}.mine"
    train(name, tmp_path / "a")
    file, text = package / f"{edited}.py", (package / f"{edited}.py").read_text()
    file.write_text(text + "# edited\n")
    with pytest.raises(rlkit.UserError, match=rf"^{file} has changed since this program imported it: start the prog"):
        train(name, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    file.write_text(text)
    train(name, tmp_path / "b")


def test_a_run_that_goes_on_in_the_same_program_is_refused_too(package: Path, tmp_path: Path) -> None:
    name, helper = f"{package.name}.mine", package / "helper.py"
    train(name, tmp_path / "a")
    helper.write_text("STEP = 2\n")
    for trust, words in ((True, "put it back"), ("changed", "this program imported it")):
        with pytest.raises(rlkit.UserError, match=f"^{helper} has changed since .*{words}"):
            rlkit.load(tmp_path / "a", trust=trust).resume(iterations=2, quiet=True)


WALK = """import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Walk(CartPoleEnv): pass
"""


def test_a_class_whose_module_was_edited_since_it_was_imported_is_refused(package: Path, tmp_path: Path) -> None:
    (package / "world.py").write_text(WALK)
    world = importlib.import_module(f"{package.name}.world")  # as a notebook imports it, not rlkit
    assert f"{package.name}.world" not in outside.FINDER.ran
    keys = {key: value for key, value in SHORT.items() if not key.startswith("algo.")}
    run = rlkit.train("ppo", world.Walk, out=tmp_path / "a", **keys)
    assert f"{package.name}.world" in yaml.safe_load((run.folder / "config.yaml").read_text())["marks"]
    later = outside.FINDER.began[world.__name__] + 10**9
    os.utime(package / "world.py", ns=(later, later))
    assert places.located(world.__name__) == package / "world.py", "to look for it is not to import it"
    with pytest.raises(rlkit.UserError, match=r"world\.py has changed since this program imported it"):
        rlkit.train("ppo", world.Walk, out=tmp_path / "b", **keys)
    ahead = time.time_ns() + 3600 * 10**9
    os.utime(package / "world.py", ns=(ahead, ahead))
    assert outside.changed({str(package / "world.py")}) is None, "a clock that is ahead says nothing of an edit"
    assert sys.modules[world.__name__] is world, "its classes stay what they are"


@pytest.mark.slow
def test_a_class_that_has_no_file_goes_on(tmp_path: Path) -> None:
    notebook = ModuleType("its_notebook")
    sys.modules["its_notebook"] = notebook
    exec(WALK, vars(notebook))
    keys = {key: value for key, value in SHORT.items() if not key.startswith("algo.")}
    for out in ("a", "b"):
        rlkit.train("ppo", notebook.Walk, out=tmp_path / out, **keys)
    del sys.modules["its_notebook"]


SHADOWS = {
    "package": "helper/__init__.py",
    "compiled package": f"helper/__init__{EXTENSION_SUFFIXES[-1]}",
    "cached package": "helper/__init__.pyc",
    **{f"extension {suffix}": f"helper{suffix}" for suffix in EXTENSION_SUFFIXES},
}


@pytest.mark.parametrize("shadow", SHADOWS)
@pytest.mark.parametrize("dotted", [False, True], ids=["file", "dotted"])
def test_what_takes_the_place_of_a_neighbor_is_refused(
    dotted: bool, shadow: str, package: Path, tmp_path: Path
) -> None:
    train(f"{package.name}.mine" if dotted else package / "mine.py", tmp_path / "a")
    new = package / SHADOWS[shadow]
    new.parent.mkdir(exist_ok=True)
    new.write_text("raise SystemExit('it ran')\n")
    with pytest.raises(rlkit.UserError, match=f"^{new} is new since the run .* began: take it away, or accept"):
        rlkit.load(tmp_path / "a", trust=True)
    if dotted:  # it stays what this program imported
        assert rlkit.load(tmp_path / "a", trust="changed").summary
        return
    with pytest.raises(rlkit.UserError, match=r"SystemExit: it ran \(|helper\S* is no \.py file"):
        rlkit.load(tmp_path / "a", trust="changed")


def test_a_cached_neighbor_in_place_of_its_source_is_refused(package: Path, tmp_path: Path) -> None:
    train(package / "mine.py", tmp_path / "a")
    (package / "helper.py").rename(package / "helper.pyc")
    with pytest.raises(rlkit.UserError, match=f"^{package}/helper.py is gone since"):
        rlkit.load(tmp_path / "a", trust=True)


def test_what_python_passes_over_has_no_mark(package: Path) -> None:
    for name in ("helper.pyc", "mine.pyc"):  # python -m compileall -b
        (package / name).write_bytes(b"")
    (package / "helper").mkdir()  # without an __init__.py
    assert places.sources(str(package / "mine.py")) == [str(package / f"{name}.py") for name in ("mine", "helper")]


@pytest.mark.parametrize("suffix", [EXTENSION_SUFFIXES[0], ".pyc"])
def test_a_neighbor_of_a_file_that_is_no_source_is_refused(suffix: str, package: Path) -> None:
    (package / "helper.py").unlink()
    (package / f"helper{suffix}").write_bytes(b"")
    with pytest.raises(rlkit.UserError, match=f"^{package}/helper{suffix} is no .py file, .*remove it, or give the "):
        plugins.load("algorithms", str(package / "mine.py"))
    with pytest.raises(ImportError, match=r"(?!no \.py file)"):  # Python's own: a module with a name is Python's
        plugins.load("algorithms", f"{package.name}.mine")
    (package / "mine.py").write_text(f"try:\n    {PLUGIN.partition(chr(10))[0]}\nexcept ImportError:\n    STEP = 4\n")
    with (package / "mine.py").open("a") as file:
        file.write(PLUGIN.partition("\n")[2])
    assert plugins.load("algorithms", str(package / "mine.py")).STEP == 4, "a plug-in may go on without it"


def test_an_extension_beside_a_dotted_module_is_marked(package: Path) -> None:
    native = package / f"native{EXTENSION_SUFFIXES[0]}"
    native.write_bytes(b"\0")
    (package / "helper.py").write_text("from .native import STEP\n")
    assert places.sources(f"{package.name}.mine")[-1] == str(native)
    assert places.mark(str(native))


@pytest.mark.parametrize("where", ["mine", "helper"])
def test_a_dotted_module_that_imports_from_above_is_told_its_longer_name(where: str, package: Path) -> None:
    (package / "algos").mkdir()
    for name in ("mine", "helper"):
        (package / "algos" / f"{name}.py").write_text((package / f"{name}.py").read_text())
    (package / "base.py").write_text("X = 1\n")
    with (package / "algos" / f"{where}.py").open("a") as file:
        file.write("from ..base import X\n")
    sys.path.insert(0, str(package))
    try:
        for load in (lambda: plugins.load("algorithms", "algos.mine"), lambda: load_rewards("algos.mine:make")):
            with pytest.raises(rlkit.UserError) as caught:
                load()
            assert str(caught.value) == (
                f"{package}/algos/{where}.py imports from above its own folder: give its dotted name, "
                f"{package.name}.algos.mine, and start in {package.parent}"
            )
    finally:
        sys.path.remove(str(package))
        for name in [name for name in sys.modules if name.partition(".")[0] == "algos"]:
            del sys.modules[name]
    assert plugins.load("algorithms", f"{package.name}.algos.mine").STEP == 1


def test_a_reward_module_that_is_in_no_package_is_told_its_longer_name(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / f"of_{package.name}.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(package))
    with pytest.raises(rlkit.UserError, match=rf"dotted name, {package.name}\.of_\w+, and start in {package.parent}$"):
        load_rewards(f"of_{package.name}:make")


def test_what_no_dotted_name_reaches_is_told_to_move(tmp_path: Path) -> None:
    folder = tmp_path / "my-project" / "algos"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text("from ..base import X\n")
    with pytest.raises(rlkit.UserError, match=f"no dotted name reaches there: move what it imports into {folder}$"):
        plugins.load("algorithms", str(folder / "mine.py"))


def test_an_import_that_fails_in_another_package_is_raised_as_it_is(package: Path, tmp_path: Path) -> None:
    (tmp_path / f"other_{package.name}.py").write_text("from .x import y\n")
    (package / "mine.py").write_text(f"import other_{package.name}\n")
    with pytest.raises(ImportError, match="no known parent package"):
        plugins.load("algorithms", f"{package.name}.mine")
