"""docs/trl.md: the names on the left are TRL's, and those on the right are ours."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rlkit.language.network import LanguageNetwork
from rlkit.settings import plugins, schema
from rlkit.settings.config import Run

PAGE = (Path(__file__).parent.parent / "docs" / "trl.md").read_text(encoding="utf-8")
ROWS = [row.split("|")[1:3] for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| TRL")]
ARGUMENTS = {"model", "train_dataset", "eval_dataset", "reward_funcs", "peft_config", "generation_kwargs"}


def keys() -> set[str]:
    found = set(schema.settable(Run)) | {"resume", "algo", "env", "algo.preset"}
    found |= {f"policy.{key}" for key in schema.settable(LanguageNetwork)}
    for section, kind in (("algo", "algorithms"), ("env", "envs")):
        for name in plugins.names(kind):
            found |= {f"{section}.{key}" for key in schema.settable(plugins.load(kind, name).Config)}
    return found


@pytest.mark.slow
def test_our_names_are_keys() -> None:
    ours = [name for _, right in ROWS for name in re.findall(r"`([\w.]+)(?:=\w+)?`", right)]
    assert len(ours) > 40
    missing = {name for name in ours if name not in keys() and name not in plugins.names("algorithms")}
    assert not missing


@pytest.mark.slow  # importing TRL takes seconds
def test_their_names_are_trls() -> None:
    trl = pytest.importorskip("trl")
    configs = [trl.GRPOConfig, trl.DPOConfig, trl.SFTConfig, trl.RewardConfig, trl.RLOOConfig]
    theirs = {field.name for config in configs for field in fields(config)}
    named = [name for left, _ in ROWS for name in re.findall(r"`(?:\w+Config\.)?([\w]+)(?:=.*?)?`", left)]
    wrong = {name for name in named if name not in theirs | ARGUMENTS and not hasattr(trl, name)}
    assert wrong <= {"PPOTrainer"} and len(named) > 50
