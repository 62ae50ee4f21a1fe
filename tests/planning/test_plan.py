"""The command: what it prints, how wide, and what it refuses."""

import json
import re
from pathlib import Path

import pytest

from rlkit import plan
from rlkit.language.folders import TINY
from rlkit.planning.models import KINDS, config

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
HELD = ["model=7b", "gpus=8"]


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert plan.main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        HELD,
        ["model=70b", "gpus=512", "engine=vllm", "tensor=8", "engine_gpus=256", "kl=true", "answer_tokens=32768"],
        ["model=72b", "gpu=a6000", "gpus=8"],
        ["model=7b", "lora=16", "gpu=mi300x"],
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_it_is_at_most_80_columns_wide(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = said(words, capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert "docs/scale.md" in text and "in all" in text and "at the peak" in text


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command, shown = re.findall(r"    python -m rlkit\.plan ([^\n]*)\n\n```\n(.*?)```", PAGE, re.DOTALL)[0]
    assert shown in said(command.split(), capsys)


def test_the_seconds_of_the_phases_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*HELD, "engine=vllm", "engine_gpus=4"], capsys)
    table = text.partition("share\n")[2].partition("\n\n")[0].splitlines()
    rows = [float(line[44:54].replace(",", "")) for line in table[:-1]]
    assert sum(rows[:-1]) == pytest.approx(rows[-1], abs=0.05) and rows[-2] < 0


@pytest.mark.slow
def test_what_does_not_fit_is_told_with_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*HELD, "shard=none"], capsys)
    assert "if it fitted" in text and "It does not fit" in text and "\n  shard=full\n" in text
    assert "It fits." in said([*HELD, "shard=full"], capsys)


def test_the_native_engine_has_not_been_measured_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not\nbeen measured" in said(HELD, capsys)
    assert "measured on a GPU" not in said([*HELD, "engine=vllm"], capsys)


@pytest.mark.slow
def test_a_folder_a_file_and_a_run_are_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "0.385 M parameters" in said([f"model={TINY}"], capsys).replace("\n", " ")
    run = tmp_path / "run" / "model"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(config("qwen3-4b")))
    for place in (tmp_path / "run", run, run / "config.json"):
        text = said([f"model={place}"], capsys)
        assert "4.02 B parameters" in " ".join(text.split()) and max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
def test_a_key_may_be_written_as_a_run_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["model=135m"]
    assert said([*small, "policy.lora=16", "algo.group=4"], capsys) == said([*small, "lora=16", "group=4"], capsys)


def test_help_lists_keys_and_models(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["--help"], capsys)
    assert all(name in text for name in KINDS) and "gradient_checkpointing=false" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model=7c"], "no model '7c': did you mean 7b?"),
        (["gpu=h10"], "gpu=h10 is not allowed: give one of: a6000, a100, h100, h200, gb200, mi300x"),
        (["gpuss=8"], "no key 'gpuss': did you mean gpus?"),
        (["algo.kl_coef=0.1"], "no key 'algo.kl_coef': here it is kl=true; there are: model, "),
        (["7b"], "'7b' is not understood"),
        (["gpus=0"], "gpus=0 is not allowed"),
        (["gpus=8", "prompts=12"], "prompts=12 cannot be spread over 8 GPUs"),
        (["gpus=8", "tensor=2"], "tensor=2 is for engine=vllm"),
        (["policy.shard=full"], "shard=full does nothing with one GPU that learns: leave it out"),
        (["gpus=2", "engine=vllm", "engine_gpus=1", "shard=full"], "shard=full does nothing with one GPU that learns"),
        (["gpus=8", "engine=vllm", "policy.rows=16"], "rows=16 is for engine=native: of vLLM, as many rows as fit"),
        (["gpus=8", "engine=vllm", "tensor=3"], "tensor=3 does not divide the 8 GPUs that write"),
        (["gpus=16", "engine=vllm", "tensor=16"], "tensor=16 spans several machines of machine=8 GPUs"),
        (["gpus=8", "engine=vllm", "engine_gpus=8"], "none is left to learn"),
        (["longest=5"], "longest=5 is below the mean"),
        (["model=./nowhere"], "there is no config.json"),
        (["lora=8", "policy.lora=16"], "lora is given twice, as lora=8 and as lora=16"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main(words) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1
