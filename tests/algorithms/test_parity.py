"""Whoever comes from TRL, verl, DI-engine or OpenRLHF finds the same number and the same gradient under its preset."""

import importlib.util
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support import parity, systems_trl
from support.parity import Case
from support.parity_cases import CASES, trl

from rlkit import policies
from rlkit.settings import config, plugins, schema

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
HOW_LONG = {"group", "epochs", "minibatches", "tries", *(f.name for f in fields(policies.Optimization))}


def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parity_tables", ROOT / "benchmarks" / "parity_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_preset_is_the_system_in_loss_gradient_and_advantage(case: Case) -> None:
    gaps = parity.compare(case)
    assert max(gaps.value, gaps.gradient, gaps.advantage) < 1e-6, gaps


def test_the_batches_go_where_the_systems_clip_in_every_way() -> None:
    plays = list(parity.plays(trl("", "grpo")))
    batches = [(p.batch(), systems_trl.advantages(p.scores).unsqueeze(1)) for p in plays]

    def reached(where: Any) -> bool:
        return any(bool((where((b.new - b.old).exp(), a) & b.mask.bool()).any()) for b, a in batches)

    assert reached(lambda ratio, a: (ratio > 5) & (a > 0)) and reached(lambda ratio, a: (ratio > 4) & (a < 0))
    assert reached(lambda ratio, a: (ratio < 0.8) & (a > 0)) and reached(lambda ratio, a: (ratio < 0.8) & (a < 0))
    assert all(len(set(b.mask.sum(1).tolist())) > 3 for b, _ in batches)  # rows of different lengths
    assert any(not b.mask.any(1).all() for b, _ in batches)  # one without tokens
    assert all((p.scores.std(1) == 0).any() for p in plays)  # a group that scores the same throughout


@pytest.mark.parametrize("wrong", [{"clip_high": 0.28}, {"std": "biased"}, {"dual_clip": 3.0}, {"over": "sequence"}])
def test_any_other_setting_would_be_noticed(wrong: dict[str, Any]) -> None:
    gaps = parity.compare(trl(f"{wrong}", "grpo", wrong))
    assert gaps.value > 1e-3 and gaps.gradient > 1e-3


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_command_in_the_table_sets_what_was_compared(case: Case) -> None:
    """Also where the pair's own file in configs/ says something else."""
    module = plugins.load("algorithms", case.member)
    given = config.read([*case.command.split(), "env=gsm8k"]).algo
    commanded = schema.build(module.Config, {k: v for k, v in given.items() if k != "name"}, "algo")
    compared = module.Config(**case.behind | case.options)
    names = {f.name for f in fields(compared)} - HOW_LONG
    assert {n: getattr(commanded, n) for n in names} == {n: getattr(compared, n) for n in names}


def test_the_page_shows_the_agreement_that_is_measured() -> None:
    tool = tables()
    shown, measured = tool.parse(tool.cut(PAGE, "agreement")[1]), tool.agreement()
    assert [row[:3] for row in shown] == [row[:3] for row in measured]
    for said, found in zip(shown[1:], measured[1:], strict=True):
        for a, b in zip(said[3:], found[3:], strict=True):
            assert a == b == "-" or float(b) <= max(10 * float(a), 1e-14), (said, found)  # rounding differs by machine


def test_the_page_shows_the_differences_that_are_computed() -> None:
    tool = tables()
    shown, computed = tool.parse(tool.cut(PAGE, "differences")[1]), tool.differences()
    assert len(shown) == len(computed)
    for said, found in zip(shown, computed, strict=True):
        assert [said[0], said[1], said[3]] == [found[0], found[1], found[3]]
        numbers = [(a, b) for a, b in zip(said, found, strict=True) if b.lstrip("-")[:1].isdigit()]
        for a, b in numbers:
            torch.testing.assert_close(float(a), float(b), rtol=2e-3, atol=2e-3)
