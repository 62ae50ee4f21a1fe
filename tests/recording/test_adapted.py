"""Runs with adapters: what learns, what is written, and that a run that was stopped goes on exactly."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.resuming import REWARD, cut, differences
from torch.testing import assert_close

import rlkit
from rlkit import run
from rlkit.language.folders import TINY
from rlkit.language.network import LanguageNetwork
from rlkit.recording import checkpoint

SMALL = ["env.train=8", "env.test=2", "env.validation=2", "env.rows=2", "env.max_tokens=8", "threads=1"]
SMALL += ["evaluation_episodes=2", "validation_episodes=2"]
GSM8K = ["env=gsm8k", REWARD, *SMALL]
JUDGED = ["env=gsm8k", "env.train=8", "env.test=24", "env.validation=0", "env.rows=2", "env.max_tokens=24", "threads=1"]
JUDGED += ["evaluation_episodes=24", "evaluate_every=0"]
RUNS = {
    "grpo": ["algo=grpo", *GSM8K, "algo.group=4", "algo.kl_coef=0.1"],
    "ppo": ["algo=ppo", *GSM8K, "algo.kl_coef=0.1"],
    "sft": ["algo=sft", "env=gsm8k", *SMALL[1:]],
    "dpo": ["algo=dpo", "env=preferences", *SMALL],
    "reward model": ["algo=reward_model", "env=preferences", *(word for word in SMALL if word != "env.max_tokens=8")],
    "its writer": ["algo=reward_model", *JUDGED],
}
LORA = ["policy.lora=2", "algo.lr=1e-2"]


def is_base(name: str) -> bool:
    return ".adapter." not in name and name.startswith(("decoder.", "writer."))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_adapters_and_heads_learn_and_the_rest_stays(name: str, tmp_path: Path) -> None:
    assert run.main([*RUNS[name], *LORA, "iterations=2", "policy.base_dtype=bfloat16", f"out={tmp_path}"]) == 0
    state = checkpoint.load(tmp_path)["parts"]
    stored = {key for key, x in state["policy"].items() if isinstance(x, torch.Tensor)}
    assert not any(map(is_base, stored)) and any(state["policy"][key].any() for key in stored if key.endswith(".up"))
    assert all(state["policy"][key].any() for key in stored if "value_head" in key and "weight" in key)
    if "reference" in state:
        assert not any(isinstance(x, torch.Tensor) for x in state["reference"].values())
    assert (tmp_path / "adapter").exists() == ("reward_model" not in RUNS[name][0])  # PEFT has no such head
    merged, base = load_file(tmp_path / "model" / "model.safetensors"), load_file(TINY / "model.safetensors")
    changed = [key for key in base if not torch.equal(merged[key], base[key].bfloat16().float())]
    moved = {key.split(".")[-2] for key in changed}
    assert moved and moved <= {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.mark.slow
def test_a_runs_adapter_on_its_base_is_the_runs_model(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run.main([*RUNS["sft"], *LORA, "iterations=2", f"out={out}"]) == 0
    tokens = torch.arange(20)[None]
    read = [
        LanguageNetwork(adapter=str(out / "adapter")).build(),
        LanguageNetwork(model=str(out / "model")).build(),
        rlkit.load(out, trust=True).policy.module,
    ]
    one, other, loaded = (x.decoder.logits(x.decoder(tokens)).detach() for x in read)  # type: ignore[attr-defined]
    assert torch.equal(one, loaded)
    assert_close(one, other, rtol=1e-4, atol=1e-4)
    more = ["policy.adapter=" + str(out / "adapter"), "iterations=1", f"out={tmp_path / 'more'}"]
    assert run.main([*RUNS["grpo"], *more]) == 0  # the reference has adapters of its own
    state = checkpoint.load(tmp_path / "more")["parts"]["reference"]
    assert {key for key, x in state.items() if isinstance(x, torch.Tensor)} == {
        name
        for name, p in read[0].named_parameters()
        if ".adapter." in name  # type: ignore[attr-defined]
    }


LENGTH = ["iterations=4", "evaluate_every=2", "checkpoint_every=1"]


@pytest.mark.parametrize("keys", [[], LORA, [*LORA, "policy.base_dtype=bfloat16"]], ids=["whole", "lora", "bfloat16"])
@pytest.mark.parametrize("name", ["grpo", "ppo"])
@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_exactly(
    name: str, keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, one, other = [*RUNS[name], *keys, *LENGTH], tmp_path / "whole", tmp_path / "cut"
    assert run.main([*words, f"out={one}"]) == 0
    cut(words, other, monkeypatch)
    assert run.main([f"resume={other}", "trust=true"]) == 0
    assert differences(one, other) == []
    assert (other / "adapter").exists() == bool(keys)


@pytest.mark.slow
def test_a_checkpoint_with_all_weights_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rlkit 0.5 wrote it: the reference whole."""
    words, one, other = [*RUNS["grpo"], *LENGTH], tmp_path / "whole", tmp_path / "old"
    assert run.main([*words, f"out={one}"]) == 0
    cut(words, other, monkeypatch)
    state = checkpoint.load(other)
    assert state["parts"]["reference"].keys() == {"frozen"}
    state["parts"]["reference"] = {f"decoder.{key}": x for key, x in load_file(TINY / "model.safetensors").items()}
    checkpoint.save(other, state, iteration=2)
    assert run.main([f"resume={other}", "trust=true"]) == 0
    assert differences(one, other) == []


def test_best_holds_the_policy_alone_and_is_measured(tmp_path: Path) -> None:
    measured = ("iterations=2", "measure=best", "evaluate_every=1")
    assert run.main([*RUNS["grpo"], *LORA, *measured, f"out={tmp_path}"]) == 0
    state = checkpoint.load(tmp_path, "best")
    assert state.keys() == {"run", "parts", "numbers", "at", "progress"} and state["parts"].keys() == {"policy"}
    sizes = {x: (tmp_path / "checkpoints" / f"{x}.safetensors").stat().st_size for x in ("best", "latest")}
    assert sizes["best"] < sizes["latest"]
    assert json.loads((tmp_path / "summary.json").read_text())["finished"]


@pytest.mark.slow
def test_a_model_that_was_exchanged_is_refused_at_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(TINY, tmp_path / "base")
    keys = [f"policy.model={tmp_path / 'base'}", *LORA]
    assert run.main([*RUNS["sft"], *keys, "iterations=1", f"out={tmp_path / 'run'}"]) == 0
    LanguageNetwork(fresh=True).build().save(tmp_path / "base")
    capsys.readouterr()
    assert run.main([f"resume={tmp_path / 'run'}", "iterations=2", "trust=changed"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("rlkit: policy.model=") and "has other weights than when the run began" in told[-1]
