"""Runs of architectures that transformers computes: they learn, go on exactly, and leave what transformers loads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.resuming import REWARD, cut, differences

import rlkit
from rlkit import run
from rlkit.recording import checkpoint

transformers = pytest.importorskip("transformers")
from support.foreign_folders import write  # noqa: E402  # it imports transformers

SMALL = ["env.train=8", "env.test=2", "env.validation=2", "env.rows=2", "env.max_tokens=8", "threads=1"]
SMALL += ["evaluation_episodes=2", "validation_episodes=2", "algo.lr=1e-3"]
GSM8K, PAIRS = ["env=gsm8k", REWARD, *SMALL], ["env=preferences", *SMALL, "policy.micro_steps=300"]
RUNS = {
    "grpo": ["algo=grpo", *GSM8K, "algo.group=4", "algo.kl_coef=0.1", "policy.gradient_checkpointing=true"],
    "ppo": ["algo=ppo", *GSM8K, "algo.kl_coef=0.1"],
    "sft": ["algo=sft", "env=gsm8k", *SMALL[1:]],
    "dpo": ["algo=dpo", *PAIRS],
    "reward model": ["algo=reward_model", *(word for word in PAIRS if word != "env.max_tokens=8")],
}
SHAPE: dict[str, Any] = {"n_positions": 256}


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    write(folder, "gpt2", **SHAPE)
    return folder


@pytest.mark.parametrize("name", ["grpo", *(pytest.param(name, marks=pytest.mark.slow) for name in list(RUNS)[1:])])
@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_exactly(
    name: str, gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*RUNS[name], f"policy.model={gpt2}", "iterations=4", "evaluate_every=2", "checkpoint_every=1"]
    one, other = tmp_path / "whole", tmp_path / "cut"
    assert run.main([*words, f"out={one}"]) == 0
    cut(words, other, monkeypatch)
    assert run.main([f"resume={other}", "trust=true"]) == 0
    assert differences(one, other) == []
    trained = rlkit.load(one, trust=True).policy.module
    made = transformers.AutoModelForCausalLM.from_pretrained(one / "model").eval()
    start = transformers.AutoModelForCausalLM.from_pretrained(gpt2)
    moved = [n for n, p in made.named_parameters() if not torch.equal(p, start.get_parameter(n))]
    assert moved and all(torch.equal(p, trained.decoder.whole.get_parameter(n)) for n, p in made.named_parameters())  # type: ignore[attr-defined]
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        ours = trained.decoder.logits(trained.decoder.hidden(tokens))  # type: ignore[attr-defined]
        torch.testing.assert_close(ours, made(input_ids=tokens).logits)


@pytest.mark.slow
def test_a_checkpoint_holds_no_frozen_weights(gpt2: Path, tmp_path: Path) -> None:
    """Not under the second name of a tied one, either."""
    assert run.main([*RUNS["grpo"], f"policy.model={gpt2}", "iterations=1", f"out={tmp_path}"]) == 0
    parts = checkpoint.load(tmp_path)["parts"]
    stored = {name for name, x in parts["policy"].items() if isinstance(x, torch.Tensor)}
    assert stored and all(".attn." in name for name in stored)
    assert parts["reference"].keys() == {"frozen"}


@pytest.mark.slow
def test_the_first_ratio_is_one_and_the_doctor_names_nothing_of_it(gpt2: Path, tmp_path: Path) -> None:
    words = [*RUNS["grpo"], f"policy.model={gpt2}", "policy.trainable=all", "iterations=2", f"out={tmp_path}"]
    assert run.main(words) == 0
    alarms = json.loads((tmp_path / "summary.json").read_text())["alarms"]
    assert "first_ratio" not in {alarm["name"] for alarm in alarms}
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert line["train/kl"] < 1e-9 and line["train/clip_fraction"] == 0 and line["train/grad_norm"] > 0
