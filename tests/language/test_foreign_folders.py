"""Folders of other architectures with something wrong: one line, before memory or time is taken; no code is fetched."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import damaged_models as damage
from support.small_model import PROMPTS
from torch import nn

from rlkit import memory
from rlkit.errors import Diverged, UserError
from rlkit.language.foreign import Foreign
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork

transformers = pytest.importorskip("transformers")
from support.foreign_folders import SIZES, write  # noqa: E402  # it imports transformers


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write(folder / "plain", "gpt2")
    LanguageModel.load(folder / "plain", value_head=True).save(folder / "model")
    return folder / "model"


@pytest.fixture(autouse=True)
def a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 2**26)


def config(folder: Path, change: dict[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    found = load_file(folder / "model.safetensors")
    change(found)
    save_file(found, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"model_type": "gpt9"},
            r"model_type is 'gpt9'; native are llama, .* transformers knows no causal language model",
        ),
        ({"model_type": "bert_generation_x" * 9}, r"model_type is '(bert_generation_x){2}bert_g'; "),
        ({"auto_map": {"AutoModelForCausalLM": "own.Own"}}, "auto_map means code of its own or quantized weights"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config means code of its own or quantized"),
        ({"n_layer": 10**9}, "n_layer is 1000000000, and 28 is the most with 28 weights"),
        ({"n_embd": 10**9}, "n_embd is 1000000000, and 16777216 is the most with 28 weights"),
        ({"inner": {"num_layers": 29}}, "num_layers is 29, and 28 is the most"),
        ({"n_positions": -(10**30)}, "n_positions is -1000000000000000000, and 1048576 is the most"),
        ({"n_ctx": 2**20 + 1}, "n_ctx is 1048577, and 1048576 is the most"),
        ({"model_type": "pegasus"}, "model_type is 'pegasus', whose table of positions takes transformers too long"),
        ({"n_positions": 10**6}, r"a model of 32,\d{3},\d{3} numbers needs 0.1 GB"),
        (
            {"n_embd": 64},
            r"h.0.attn.c_attn.bias is \[96\], but config.json means \[192\]; config and weights are of diff",
        ),
        ({"n_layer": 3}, r"12 weights are missing, such as transformer.h.2.attn.c_attn.bias: copy it again"),
        ({"n_head": 5}, r"transformers cannot build this model \(ValueError: .*divisible"),
        ({"activation_function": "own"}, r"transformers cannot build this model \("),
        ({"n_embd": "wide"}, r"transformers cannot build this model \("),
        ({"to_dict": 1}, r"transformers cannot build this model \("),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_type is 'dynamic': the probability of a token would depend"),
        (
            {"logit_scale": 2.0},
            "model_type is 'gpt2', which computes logits, or keeps what it has read, by a rule that",
        ),
    ],
)
def test_a_configuration_is_refused_in_one_line(change: dict[str, Any], said: str, good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    config(folder, change)
    with pytest.raises(UserError, match=said) as error:
        LanguageModel.load(folder)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.pop("transformer.wpe.weight"), r"1 weights are missing, such as transformer.wpe.weight: copy it"),
        (
            lambda x: x["transformer.ln_f.bias"].fill_(torch.nan),
            r"transformer.ln_f.bias holds numbers that are not fin",
        ),
        (lambda x: x.update(more=torch.zeros(2**24 + 1)), r"a model of 16,\d{3},\d{3} numbers needs 0.1 GB"),
        (lambda x: x.update(more=torch.zeros(2, dtype=torch.int8)), "more is of type I8"),
    ],
)
def test_weights_are_refused_in_one_line(
    change: Callable[[dict[str, torch.Tensor]], object], said: str, good: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    tensors(folder, change)
    with pytest.raises(UserError, match=said):
        LanguageModel.load(folder)


def test_weights_that_config_json_has_no_place_for_are_named(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LanguageModel.load(good)
    assert not capsys.readouterr().err
    folder = shutil.copytree(good, tmp_path / "model")
    config(folder, {"n_layer": 1})
    LanguageModel.load(folder)
    said = r"has no transformer\.h\.1\.attn\.c_attn\.\w+ \(weights left out: 11\)\n"
    assert re.search(said, capsys.readouterr().err), "as transformers says"


@pytest.mark.parametrize("kind", ["mamba", "gemma3"])
def test_what_reads_by_another_rule_is_refused(kind: str, tmp_path: Path) -> None:
    sizes = {"mamba": {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2}, "gemma3": {"text_config": SIZES}}
    write(tmp_path, "gpt2")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **sizes[kind]}))
    with pytest.raises(UserError, match=f"model_type is '{kind}', which computes logits, or keeps what it has read"):
        LanguageModel.load(tmp_path)


def test_a_cache_that_mixes_up_its_rows_is_refused(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes repeats the rows of a cache, and drops those that have ended."""
    layer = transformers.cache_utils.DynamicLayer
    right = layer.reorder_cache
    monkeypatch.setattr(layer, "reorder_cache", lambda self, rows: right(self, rows * 0))
    with pytest.raises(UserError, match="keeps what it has read, by a rule that rlkit does not know"):
        LanguageModel.load(good)


def test_the_labels_of_a_classifier_take_no_time_and_no_memory(good: Path, tmp_path: Path) -> None:
    """transformers would make two dictionaries with an entry for each, here of 2 GB."""
    folder = shutil.copytree(good, tmp_path / "model")
    for labels in ({"num_labels": 2**24}, {"num_labels": 3, "id2label": {"0": "x"}, "label2id": {"x": 0}}):
        config(folder, labels)
        decoder = LanguageModel.load(folder).decoder
        assert isinstance(decoder, Foreign) and decoder.whole.config.num_labels == 2
        assert labels.items() <= decoder.config.items(), "what is saved says what the file said"
    many = {"num_labels": 2**24, "model_type": "gemma3_text"}
    config(folder, {"model_type": "gemma3", "text_config": many, "vision_config": many})
    with pytest.raises(UserError, match="model_type is 'gemma3', which computes logits"):
        LanguageModel.load(folder)


def test_more_positions_than_usual_need_a_weight_that_has_them(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    config(folder, {"seq_length": 2**20 + 1})
    with pytest.raises(UserError, match="seq_length is 1048577, and 1048576 is the most"):
        LanguageModel.load(folder)
    tensors(folder, lambda x: x.update(more=torch.zeros(2**20 + 1, 1)))
    assert LanguageModel.load(folder).decoder.context == 128


@pytest.mark.slow
def test_many_experts_in_few_tensors_are_taken(tmp_path: Path) -> None:
    """transformers may save all experts of a layer as one tensor."""
    sizes = {"num_experts": 64, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8}
    write(tmp_path / "plain", "qwen2_moe", **sizes)
    first = LanguageModel.load(tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "model")
    assert isinstance(first.decoder, Foreign)
    first.decoder.whole.save_pretrained(tmp_path / "model", save_original_format=False)
    assert len(load_file(tmp_path / "model" / "model.safetensors")) < 64
    again = LanguageModel.load(tmp_path / "model").state_dict()
    assert all(torch.equal(again[name], x) for name, x in first.state_dict().items())
    config(tmp_path / "model", {"num_experts": 10**6})
    with pytest.raises(UserError, match=r"num_experts is 1000000, and \d+ is the most"):
        LanguageModel.load(tmp_path / "model")


def test_names_that_earlier_versions_gave_are_understood(good: Path, tmp_path: Path) -> None:
    """GPT-2 on the hub lacks the prefix, and holds the masks as weights."""
    folder = shutil.copytree(good, tmp_path / "model")
    found = {name.removeprefix("transformer."): x for name, x in load_file(folder / "model.safetensors").items()}
    save_file({**found, "h.0.attn.bias": torch.ones(1, 1, 128, 128).tril()}, folder / "model.safetensors")
    one, other = (LanguageModel.load(x).state_dict() for x in (good, folder))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_nothing_says_with_whose_code_it_is_computed(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    kernels = {f"{start}{what}_implementation": "someone/kernel" for start in ("", "_") for what in ("attn", "experts")}
    renamed = {"attribute_map": {"zz": "_attn_implementation"}, "zz": "someone/kernel"}
    config(folder, {**kernels, **renamed, "_attn_implementation_internal": "someone/kernel"})
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/model", "peft_type": "LORA"}')
    decoder = LanguageModel.load(folder).decoder
    assert isinstance(decoder, Foreign) and decoder.whole.config._attn_implementation in ("sdpa", "eager")


def test_transformers_is_left_as_it_was(good: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled(), torch.get_rng_state()
    LanguageModel.load(good)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_without_transformers_the_line_names_what_to_install(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.models.auto.modeling_auto", None)
    with pytest.raises(UserError, match=r"config.json: model_type is 'gpt2'; .* pip install 'transformers>=5.5'$"):
        LanguageModel.load(good)


@pytest.mark.slow
def test_a_native_model_loads_no_transformers() -> None:
    code = "import sys; from rlkit.language.model import LanguageModel as M; M.load('tiny').generate(['x'], 1, 2)"
    check = "assert not any(x.split('.')[0] == 'transformers' for x in sys.modules)"
    subprocess.run([sys.executable, "-c", f"{code}; {check}"], check=True)


def test_gradient_checkpointing_that_there_is_not_is_refused(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Foreign, "_blocks", lambda _: [])
    with pytest.raises(UserError, match=r"gradient_checkpointing=true: transformers has no such thing for gpt2"):
        LanguageNetwork(model=str(good), gradient_checkpointing=True).build()
    assert isinstance(LanguageNetwork(model=str(good)).build(), nn.Module)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))])
@pytest.mark.slow
def test_a_damaged_folder_works_or_is_one_line(part: int, good: Path, tmp_path: Path) -> None:
    said = {}
    for i, (name, change) in enumerate(damage.cases(seed=1, count=5)[part::3]):
        folder = shutil.copytree(good, tmp_path / str(i))
        change(folder)
        try:
            said[name] = used(folder, tmp_path / "out")
        except Exception as error:
            raise AssertionError(name) from error
    assert {"", *said.values()} != {""}


def used(folder: Path, out: Path) -> str:
    """Load the model, write with it and save it; what it was refused for, or ""."""
    try:
        policy = LanguageModel.load(folder, value_head=True)
        policy.evaluate(policy.generate(PROMPTS, repeats=2, max_tokens=4).flatten())
        policy.save(out)
    except (UserError, Diverged) as error:
        assert "\n" not in str(error) and len(str(error)) < 600, str(error)[:2000]
        return str(error)
    return ""
