"""The pages name the checks that the doctor has."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rlkit.doctor import CHECKS
from rlkit.settings import plugins

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(r"^\| `(\w+)` \|", re.M)


def test_its_page_lists_every_check() -> None:
    first, _, _ = (DOCS / "doctor.md").read_text(encoding="utf-8").partition("Three more problems")
    assert set(ROW.findall(first)) == set(CHECKS)


def test_other_pages_name_checks_that_are_there() -> None:
    named = [
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"the doctor's `(\w+)`", page.read_text(encoding="utf-8"))
    ]
    assert named and not set(named) - set(CHECKS)


@pytest.mark.parametrize(
    ("check", "algorithms"),
    {
        "advantage": "ppo a2c reinforce grpo",
        "clip_fraction": "ppo grpo dapo gspo cispo gmpo reinforce_pp",
        "entropy": "ppo a2c reinforce grpo sac",
        "gradient": "ppo grpo reinforce_pp",
        "equal_groups": "grpo dapo rloo dpo",
        "explained_variance": "ppo a2c reinforce",
        "no_update": "dqn sac td3",
        "target": "dqn",
        "ref_kl": "ppo grpo reinforce_pp",
    }.items(),
)
def test_the_advice_names_a_key_of_each_algorithm_that_it_is_given_to(check: str, algorithms: str) -> None:
    named = {*re.findall(r"algo\.(\w+)", CHECKS[check].says)} - {"lr", "epochs"}
    for name in algorithms.split():
        keys = {each.name for each in fields(plugins.load("algorithms", name).Config)}
        assert named & keys, (name, named)
