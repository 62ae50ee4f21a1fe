"""The tables of docs/coming_from: our defaults are those of the code, TRL's are TRL's, and the scripts run."""

import math
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
from support.processes import run

from rlkit.settings import config, plugins

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "coming_from").glob("*.md"))}
TEXT = {"trl", "verl"}  # pages about language models
HEADING = re.compile(r"## .*\(`algo=(\w+)`\)")


def rows(page: str) -> list[tuple[str, str, str, str, str]]:
    """(algorithm, their key, their default, our key, our default) of each row with a key of ours."""
    found, algo = [], ""
    for line in PAGES[page].splitlines():
        if line.startswith("## "):
            heading = HEADING.fullmatch(line)
            algo = heading[1] if heading else ""
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if algo and len(cells) == 5 and re.fullmatch(r"`\w+\.\w+`", cells[2]):
            found.append((algo, cells[0].strip("`"), cells[1], cells[2].strip("`"), cells[3]))
    return found


def defaults(page: str, algo: str) -> dict[str, object]:
    """`algo.lr`, `policy.hidden` ... and their defaults."""
    kind, env = ("text", "gsm8k") if page in TEXT else ("control", "gym")
    classes = {"algo": plugins.load("algorithms", algo).Config, "env": plugins.load("envs", env).Config}
    classes["policy"] = config.network_class(kind)
    return {
        f"{section}.{field.name}": field.default if field.default is not MISSING else None
        for section, cls in classes.items()
        for field in fields(cls)
    }


def same(written: str, value: object) -> bool:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return written not in ("none", "") and math.isclose(float(written.replace(",", "")), float(value))
    if isinstance(value, tuple):
        return written == ", ".join(map(str, value))
    return written == str(value).lower()


@pytest.mark.parametrize("page", PAGES)
def test_our_defaults_are_those_of_the_code(page: str) -> None:
    table = rows(page)
    assert len(table) > 20
    wrong = [row for row in table if not same(row[4], defaults(page, row[0]).get(row[3], "no such key"))]
    assert wrong == []


@pytest.mark.slow
def test_trls_defaults_are_those_of_its_code() -> None:
    trl = pytest.importorskip("trl")
    known = {"grpo": trl.GRPOConfig, "dpo": trl.DPOConfig, "sft": trl.SFTConfig}
    for algo, key, written, _, _ in rows("trl"):
        field = known[algo].__dataclass_fields__[key]
        value = field.default if field.default is not MISSING else field.default_factory()
        value = value[0] if isinstance(value, list) else getattr(value, "value", value)
        assert same(written.lower(), value), (key, written, value)


@pytest.mark.slow
def test_trls_trainer_decays_matrices_alone_as_the_page_says() -> None:
    pytest.importorskip("accelerate")
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=9, attention_bias=True, **sizes))
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    assert decayed == {name for name, p in model.named_parameters() if p.dim() >= 2}
    rows_of_decay = [line for line in PAGES["trl"].splitlines() if "`weight_decay`" in line]
    assert len(rows_of_decay) == 1 and "on matrices only, in both" in rows_of_decay[0]


@pytest.mark.slow
def test_trls_other_defaults_are_those_of_its_code() -> None:
    """Of keys that rlkit does not have."""
    trl = pytest.importorskip("trl")
    row = re.compile(r"\| `max_length` \| (\d+) \| none \|")
    found = [int(number) for number in row.findall(PAGES["trl"])]
    assert found == [trl.DPOConfig.max_length, trl.SFTConfig.max_length] == [trl.RewardConfig.max_length] * 2


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_script_runs(page: str, tmp_path: Path) -> None:
    [script] = re.findall(r"^```python\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE)
    run(tmp_path, "-c", script)
