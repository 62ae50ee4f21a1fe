"""What pyproject.toml asks for: versions that were tested, and a name that no message tells anybody to install."""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from itertools import chain
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rlkit.envs import minigrid

from rlkit.comparison.on_ray import joined
from rlkit.errors import UserError
from rlkit.language.vllm_inside import Inside
from rlkit.recording.writers import check_tracker
from rlkit.text.sources import hub_rows
from rlkit.tuning.study import installed

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = {PROJECT["name"], "rlkit"}  # nothing to install: the first is not published, the second is another project's
TOLD = ("rlkit", "algorithms", "envs", "docs", "benchmarks", "examples", "configs", "README.md", "CHANGELOG.md")


def pinned(file: str) -> dict[str, Version]:
    """The versions that a file of constraints holds."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def requirements(*extras: str) -> Iterator[Requirement]:
    """What the project itself needs, and what these extras add; an extra may name others."""
    lists = [PROJECT["optional-dependencies"][extra] for extra in extras] or [PROJECT["dependencies"]]
    for requirement in map(Requirement, chain(*lists)):
        if requirement.name == PROJECT["name"]:
            yield from requirements(*requirement.extras)
        else:
            yield requirement


def everything() -> list[Requirement]:
    return [*requirements(), *requirements(*PROJECT["optional-dependencies"])]


def advice(text: str) -> set[str]:
    """The names of what a text tells to install from an index, and whatever is written as an extra of ours."""
    found = set()
    for command in re.findall(r"pip3? install ([^`\n;&]*)", text):
        found |= set(re.findall(r"[\w.-]+", command.partition(", ")[0])) & OWN
    return found | set(re.findall(rf"\b(?:{'|'.join(OWN)})\[[a-z]", text))


@pytest.mark.parametrize("place", [place for place in TOLD if (ROOT / place).exists()])
def test_nothing_says_to_install_this_project_from_an_index(place: str) -> None:
    paths = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*"))
    texts = {path: path.read_bytes().decode(errors="ignore") for path in paths if path.is_file()}
    assert not {str(path): advice(text) for path, text in texts.items() if path.suffix != ".pyc" and advice(text)}


@pytest.mark.parametrize("text", ["pip install rlkit", "pip install 'rlkit[hub]'", f"pip install -U {PROJECT['name']}"])
def test_such_advice_is_noticed(text: str) -> None:
    assert advice(text)


@pytest.mark.parametrize(
    "text", ["pip install -e '.[box2d]' && rlkit run", "pip install 'gymnasium[box2d]', then rlkit"]
)
def test_other_advice_is_left_alone(text: str) -> None:
    assert not advice(text)


def test_the_lower_bounds_are_the_versions_that_were_tested() -> None:
    bounds = {}
    for requirement in everything():
        for part in requirement.specifier:
            if part.operator == ">=":
                bounds[canonicalize_name(requirement.name)] = Version(part.version)
    assert bounds == pinned("constraints-floors.txt")
    assert all(any(part.operator == ">=" for part in requirement.specifier) for requirement in requirements())


def test_the_pinned_versions_are_admitted() -> None:
    versions = pinned("constraints.txt")
    assert not {str(r) for r in [*requirements(), *requirements("test")] if canonicalize_name(r.name) not in versions}
    pairs = [(requirement, versions.get(canonicalize_name(requirement.name))) for requirement in everything()]
    assert not {f"{r}: {version}" for r, version in pairs if version and version not in r.specifier}


def test_no_extra_is_needed_for_torchrl() -> None:
    needed = {requirement.name: requirement.specifier for requirement in requirements()}
    assert "torchrl" in needed
    assert "0.14.3" in needed["tensordict"] and "0.15.0" not in needed["tensordict"]  # as torchrl 0.14.1 itself says


class Beside:
    """Finds a package in one folder alone, as if it was not installed."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(self.folder)]) if name == self.name else None


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("wandb", lambda: check_tracker("wandb")),
        ("datasets", lambda: hub_rows("openai/gsm8k")),
        ("optuna", installed),
        ("ray", joined),
        ("minigrid", lambda: minigrid.make(minigrid.Config(), 0, "cpu")),
        ("vllm", lambda: Inside(8, torch.float32)),
    ],
)
def test_a_folder_with_the_name_of_a_package_is_not_taken_for_it(
    name: str, needs: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Beside(name, tmp_path), *sys.meta_path])
    with pytest.raises(UserError, match=r"needs .*pip install"):
        needs()
    assert name not in sys.modules or sys.modules.pop(name).__file__ is None
