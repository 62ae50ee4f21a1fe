"""The page that shows the architecture, and what stands beside the code for contributors, say what is there."""

import re

import torch
import yaml
from support import drawing
from support.fakes import algorithm, cartpole
from support.sources import ROOT, SOURCES, room

import rlkit
from rlkit import policies

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_drawing_is_what_the_imports_say() -> None:
    """If this fails: PYTHONPATH=.:tests python -m support.drawing"""
    assert drawing.PATH.read_text(encoding="utf-8") == drawing.svg()


def test_the_drawing_has_every_room_and_an_import_has_arrows_that_lead_there() -> None:
    names = {room(name) for name in SOURCES if name != "rlkit"} - drawing.EVERYWHERE
    assert all(f">{name}</text>" in drawing.svg() for name in names - {"commands"})
    for name in names:
        reached, new = set(), set(drawing.arrows(name))
        while new:
            reached |= new
            new = {other for step in new for other in drawing.arrows(step)} - reached
        assert reached == drawing.all_below(name)


def test_the_page_names_files_that_are_there() -> None:
    for name in set(re.findall(r"`([\w/-]+\.(?:py|yaml)|[\w/]+/)`", PAGE)):
        folders = [ROOT, ROOT / "rlkit"]
        assert any((folder / name).exists() for folder in folders), name


def test_the_page_names_the_keys_that_a_rollout_and_its_credit_have() -> None:
    algo, env = algorithm("ppo", cartpole(2), policies.Network()), cartpole(2)
    with torch.no_grad():
        rollout = algo.rollout(env)
        before = set(rollout.keys())
        added = set(algo.credit(rollout).keys()) - before
    told = dict(re.findall(r"\| `(rollout|credit)` \|.*\| `([\w ]+)` \|", PAGE))
    assert {"rollout": before, "credit": added} == {step: set(keys.split()) for step, keys in told.items()}


def test_the_citation_is_of_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == rlkit.__version__


def test_the_workflow_tries_every_python_that_the_project_names() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    tried = workflow["jobs"]["quick"]["strategy"]["matrix"]["python"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert tried == re.findall(r"Python :: (3\.\d+)", project)
    assert f'requires-python = ">={tried[0]}"' in project
