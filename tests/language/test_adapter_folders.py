"""Folders of adapters: PEFT's format both ways, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.adapted import PLAIN_LORA, TOKENS, adapted, logits
from support.small_model import model
from torch.testing import assert_close

from rlkit import ranks
from rlkit.errors import UserError
from rlkit.language import folders
from rlkit.language.adapters import ALL, ATTENTION, Lora
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork

OTHERS = [PLAIN_LORA, Lora(2, 3.0, ATTENTION), Lora(1, 0.5, ("q_proj", "down_proj"))]


@pytest.mark.parametrize("lora", OTHERS, ids=lambda lora: f"{lora.rank} {len(lora.targets)}")
def test_peft_reads_what_is_written_and_we_read_what_peft_writes(lora: Lora, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    policy = adapted(lora)
    model().save(tmp_path / "base")
    policy.base = str(tmp_path / "base")
    policy.save_adapter(tmp_path / "ours")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base", attn_implementation="eager")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "ours").eval()
    with torch.no_grad():
        assert_close(theirs(TOKENS).logits, logits(policy, TOKENS), rtol=1e-4, atol=1e-4)
    assert moved_by_peft(theirs, tmp_path).lora == lora


@pytest.mark.parametrize(
    ("named", "targets"),
    [("all-linear", ALL), (r".*layers\.\d+\.(?:self_attn|mlp)\.(?:q|v|up)_proj", ("q_proj", "v_proj", "up_proj"))],
)
def test_layers_that_peft_names_by_path_or_pattern_are_read(
    named: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    """It lists those of all-linear with their paths."""
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    model().save(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    theirs = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=named, task_type="CAUSAL_LM")).eval()
    lora = moved_by_peft(theirs, tmp_path).lora
    assert lora is not None and lora.targets == targets


def test_an_adapter_names_its_base_by_a_path_that_holds_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model().save(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    LanguageNetwork(model="base", lora=2).build().save_adapter(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "base")


def moved_by_peft(theirs: Any, folder: Path) -> LanguageModel:  # Any: a PeftModel, of an optional package
    """What we read of a model of PEFT whose adapters were moved; it computes the same."""
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if "lora_" in name:
                p.add_(0.1)
        wanted = theirs(TOKENS).logits
    theirs.save_pretrained(folder / "theirs")
    ours = start(folder)
    assert_close(logits(ours, TOKENS), wanted, rtol=1e-4, atol=1e-4)
    return ours


def test_the_files_are_as_peft_names_them(tmp_path: Path) -> None:
    """Its documentation, developer guide "checkpoint format": base_model.model.LAYER.lora_A.weight [r, in], lora_B."""
    policy = adapted(Lora(2, 3.0, ("q_proj", "down_proj")))
    policy.base = "org/name"
    policy.save_adapter(tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    assert {name: tuple(x.shape) for name, x in tensors.items() if "layers.1" in name} == {
        "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": (2, 32),
        "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight": (32, 2),
        "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight": (2, 48),
        "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight": (32, 2),
    }
    assert len(tensors) == 8 and {x.dtype for x in tensors.values()} == {torch.float32}
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    wanted = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "org/name", "r": 2}
    wanted |= {"lora_alpha": 3, "target_modules": ["q_proj", "down_proj"], "lora_dropout": 0.0, "bias": "none"}
    assert wanted.items() <= config.items()


def test_the_base_from_the_hub_is_called_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PEFT writes it: the folder of the download is of this machine only."""
    model().save(tmp_path / "snapshot")
    monkeypatch.setattr(folders, "_download", lambda name: tmp_path / "snapshot")
    LanguageNetwork(model="org/name", lora=2).build().save_adapter(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "org/name"
    assert LanguageNetwork(model="org/name", adapter=str(tmp_path / "adapter")).build().lora is not None


def start(folder: Path, name: str = "theirs", **options: Any) -> LanguageModel:
    keys = {"model": str(folder / "base"), "adapter": str(folder / name), "dtype": "float32"}
    return LanguageNetwork(**keys | options).build()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A base and an adapter of it."""
    policy = adapted()
    model().save(tmp_path / "base")
    policy.base = str(tmp_path / "base")
    policy.save_adapter(tmp_path / "theirs")
    return tmp_path


def test_an_adapter_comes_back_and_learns_on(saved: Path) -> None:
    back = start(saved)
    assert back.lora == PLAIN_LORA
    assert torch.equal(logits(back, TOKENS), logits(adapted(), TOKENS))
    assert all(p.requires_grad == (".adapter." in name) for name, p in back.decoder.named_parameters())


def test_the_base_is_known_again_whatever_it_is_called_and_however_it_is_kept(saved: Path) -> None:
    (saved / "base").rename(saved / "moved")
    back = start(saved, model=str(saved / "moved"), base_dtype="bfloat16")
    kinds = {p.dtype for name, p in back.decoder.named_parameters() if ".adapter." not in name}
    assert kinds == {torch.bfloat16}
    assert {p.dtype for name, p in back.decoder.named_parameters() if ".adapter." in name} == {torch.float32}
    assert_close(logits(back, TOKENS), logits(adapted(), TOKENS), rtol=0.2, atol=0.5)  # of numbers around 10
    back.save_adapter(saved / "again")
    (saved / "moved").rename(saved / "base")
    assert start(saved, "again").lora == PLAIN_LORA  # marked as one of the same base


def test_stabilized_ranks_are_read(saved: Path) -> None:
    """use_rslora: the scale is alpha / √rank (arXiv:2312.03732)."""
    edit(saved, lambda config: config | {"use_rslora": True})
    back = start(saved)
    assert back.lora is not None and back.lora.scale == pytest.approx(8.0 / 2.0)


def edit(saved: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = saved / "theirs" / "adapter_config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


# Refused


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("use_dora", True, "use_dora is true, and only plain LoRA adapters are read"),
        ("bias", "all", 'bias is "all", and only plain LoRA'),
        ("modules_to_save", ["lm_head"], r'modules_to_save is \["lm_head"\], and only plain'),
        ("peft_type", "IA3", 'peft_type is "IA3", and only plain'),
        ("rank_pattern", {"q_proj": 2}, "rank_pattern is .* and only plain"),
        ("init_lora_weights", "pissa", 'init_lora_weights is "pissa", and only plain'),
        ("layers_to_transform", [0], r"layers_to_transform is \[0\], and only plain"),
        ("layers_to_transform", 0, "layers_to_transform is 0, and only plain"),
        ("r", 0, "r is 0"),
        ("r", -4, "r is -4"),
        ("lora_alpha", 0, "lora_alpha is 0"),
        ("lora_alpha", 10**400, "lora_alpha is 1000.* not a number from"),
        ("lora_alpha", float("nan"), "lora_alpha is NaN, not a number from"),
        ("k" * 1000, 1, "k{40} is 1, and only plain"),
        (
            "target_modules",
            ["q_proj", "lm_head"],
            "target_modules means 'lm_head', and adapters are read in q_proj, .*: ",
        ),
        ("target_modules", None, "target_modules means 'None', and adapters are read in q_proj, .*: use another one"),
        ("r", 8, r"lora_A.weight is \[4, 48\], and .*needs \[8, 48\]: give the model that"),
    ],
)
def test_what_is_no_plain_adapter_of_the_model_is_refused_in_one_line(
    key: str, value: object, told: str, saved: Path
) -> None:
    edit(saved, lambda config: config | {key: value})
    with pytest.raises(UserError, match=told) as caught:
        start(saved)
    assert "\n" not in str(caught.value)


def test_an_adapter_of_other_weights_is_refused(saved: Path) -> None:
    model(seed=1).save(saved / "base")  # the same name and shape
    with pytest.raises(UserError, match=r"was trained on .*base, and policy.model=.*base has other weights"):
        start(saved)


def test_an_adapter_of_another_shape_is_refused(saved: Path) -> None:
    with pytest.raises(UserError, match=r"is \[4, 48\], and policy.model=tiny needs \[4, 256\]: give the model that"):
        start(saved, model="tiny")


def test_adapters_of_some_layers_are_refused(saved: Path) -> None:
    path = saved / "theirs" / "adapter_model.safetensors"
    save_file({key: x for key, x in load_file(path).items() if ".layers.0." in key}, path)
    with pytest.raises(UserError, match=r"layers\.1\.\S+ is missing, .* with adapters in all layers$"):
        start(saved)


def test_an_adapter_without_a_fingerprint_is_known_by_the_name_of_its_base(saved: Path) -> None:
    (saved / "theirs" / "base.json").unlink()
    start(saved)
    edit(saved, lambda config: config | {"base_model_name_or_path": "meta/other-base"})
    with pytest.raises(UserError, match=r"trained on meta/other-base, and policy.model is .*/base: give that model"):
        start(saved)
    edit(saved, lambda config: config | {"base_model_name_or_path": "meta/Base"})
    assert start(saved).lora == PLAIN_LORA


def test_numbers_that_are_not_finite_are_refused(saved: Path) -> None:
    path = saved / "theirs" / "adapter_model.safetensors"
    tensors = load_file(path)
    next(iter(tensors.values()))[0, 0] = torch.nan
    save_file(tensors, path)
    with pytest.raises(UserError, match=r"lora_A.weight holds numbers that are not finite"):
        start(saved)


def test_a_run_folder_in_place_of_its_adapter_names_the_adapter(saved: Path) -> None:
    (saved / "run").mkdir()
    (saved / "theirs").rename(saved / "run" / "adapter")
    with pytest.raises(UserError, match=r"it lacks adapter_config.json, .*; give .*run/adapter"):
        start(saved, "run")


def test_a_folder_of_the_base_kept_in_bfloat16_is_kept_so(tmp_path: Path) -> None:
    model().save(tmp_path, torch.bfloat16)
    for stored, wanted in (("auto", torch.bfloat16), ("float32", torch.float32)):
        decoder = folders.read_decoder(tmp_path, stored=stored)  # type: ignore[arg-type]
        assert {p.dtype for p in decoder.parameters()} == {wanted}


def test_adapters_beside_a_whole_model_are_not_left_out(tmp_path: Path) -> None:
    """`transformers` adds them to the model of their folder."""
    adapted().save(tmp_path / "model")
    policy = adapted()
    policy.base = str(tmp_path / "model")
    policy.save_adapter(tmp_path / "model")
    with pytest.raises(UserError, match="also holds adapters, which transformers would add"):
        LanguageNetwork(model=str(tmp_path)).build()
    folder = str(tmp_path / "model")
    (tmp_path / "model" / "base.json").unlink()
    assert LanguageNetwork(model=folder, adapter=folder).build().lora == PLAIN_LORA


def test_a_chat_template_beside_the_adapters_is_named(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL saves the template there with which the adapters learned to chat."""
    folder, settings = saved / "theirs", saved / "base" / "tokenizer_config.json"
    network = LanguageNetwork(model=str(saved / "base"), adapter=str(folder))
    network.build()
    assert capsys.readouterr().err == ""
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    network.build()
    given = f"to ask by it, give policy.template={folder / 'chat_template.jinja'}"
    assert f"its own chat template is not read, and policy.model has none: {given}" in capsys.readouterr().err
    monkeypatch.setattr(ranks, "first", lambda: False)  # one of several ranks says it
    network.build()
    assert capsys.readouterr().err == ""
    same = {**json.loads(settings.read_text()), "chat_template": "{{ messages[0].content }}"}
    settings.write_text(json.dumps(same))
    network.build()
    assert capsys.readouterr().err == ""
