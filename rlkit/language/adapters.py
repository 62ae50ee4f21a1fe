"""Low-rank adapters (LoRA, arXiv:2106.09685) beside frozen weights: created, read and written in PEFT's format."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rlkit import ranks
from rlkit.api import UserError
from rlkit.disk import is_file
from rlkit.language import folders, gguf
from rlkit.language.added import read_settings
from rlkit.language.chat import ChatTemplate, read_template
from rlkit.language.decoder import Decoder
from rlkit.language.files import Fields, Json, read_json
from rlkit.language.linear import Adapter, Linear
from rlkit.language.sizes import Sizes
from rlkit.terminal import warn

CONFIG, WEIGHTS = folders.ADAPTED, "adapter_model.safetensors"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
ALL = (*ATTENTION, "gate_proj", "up_proj", "down_proj")
PREFIX = "base_model.model."  # prefix of PEFT before the name of a layer
BASE, MARK = "base.json", "fingerprint"  # a file that rlkit adds, and its key for the fingerprint of the base model
# Keys that the configuration of a plain LoRA may have beside its rank, alpha and targets.
PLAIN = {"base_model_name_or_path", "r", "lora_alpha", "target_modules", "use_rslora", "task_type", "peft_type"}
PLAIN |= {"peft_version", "auto_mapping", "revision", "inference_mode", "lora_dropout", "layers_pattern"}
PLAIN |= {"megatron_core", "qalora_group_size", "exclude_modules", "eva_config", "ensure_weight_tying"}
STARTS = (True, False, "gaussian", "eva", "orthogonal")  # init_lora_weights that leave the base unchanged


@dataclass(frozen=True)
class Lora:
    """The adapters of a decoder."""

    rank: int
    alpha: float
    targets: tuple[str, ...]

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def targets(words: str) -> tuple[str, ...]:
    """The layers meant by `attention`, `all` or a list of names, in their order within a block."""
    names = {"attention": ATTENTION, "all": ALL}.get(words) or tuple(word.strip() for word in words.split(","))
    if strange := [name for name in names if name not in ALL]:
        raise UserError(
            f"policy.lora_targets={words}: there is no '{strange[0]}'; give attention, all, or some of {', '.join(ALL)}"
        )
    return tuple(name for name in ALL if name in names)


def attach(decoder: Decoder, lora: Lora, generator: torch.Generator) -> None:
    """Freeze the decoder and add adapters that change nothing yet: down is Kaiming-uniform, as in PEFT, and up is 0."""

    def start(name: str, linear: Linear) -> tuple[Tensor, Tensor]:
        down = torch.empty(lora.rank, linear.in_features)
        nn.init.kaiming_uniform_(down, math.sqrt(5), generator=generator)
        return down, torch.zeros(linear.out_features, lora.rank)

    _attach(decoder, lora, start)


def _attach(decoder: Decoder, lora: Lora, make: Callable[[str, Linear], tuple[Tensor, Tensor]]) -> None:
    decoder.requires_grad_(False)
    for name, linear in places(decoder, lora):
        linear.adapter = Adapter(*make(name, linear), lora.scale).to(linear.weight.device)


def places(decoder: Decoder, lora: Lora) -> Iterator[tuple[str, Linear]]:
    """The layers that get an adapter, with their names."""
    for name, module in list(decoder.named_modules()):
        if isinstance(module, Linear) and name.rpartition(".")[2] in lora.targets:
            yield name, module


def sizes(decoder: Decoder, lora: Lora) -> Sizes:
    """PEFT's names of the tensors of these adapters, with their sizes."""
    found = {}
    for name, linear in places(decoder, lora):
        found[f"{PREFIX}{name}.lora_A.weight"] = [lora.rank, linear.in_features]
        found[f"{PREFIX}{name}.lora_B.weight"] = [linear.out_features, lora.rank]
    return found


def write(folder: Path, decoder: Decoder, lora: Lora, base: str, mark: str) -> None:
    """Write a folder that `peft` loads on the base model; mark: fingerprint of the base, which `read` compares."""
    if not ranks.first():
        return
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, linear in decoder.adapted():
        assert linear.adapter is not None
        tensors[f"{PREFIX}{name}.lora_A.weight"] = linear.adapter.down
        tensors[f"{PREFIX}{name}.lora_B.weight"] = linear.adapter.up
    folders.save(folder / WEIGHTS, tensors)
    write_json(folder / BASE, {MARK: mark})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": int(lora.alpha) if lora.alpha == int(lora.alpha) else lora.alpha,
        "target_modules": list(lora.targets),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "modules_to_save": None,
        "inference_mode": True,
    }
    write_json(folder / CONFIG, config)


def write_json(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read(folder: Path, decoder: Decoder, names: tuple[str, ...], mark: Callable[[], str]) -> Lora:
    """Freeze the decoder and add the adapters of a folder.

    Arguments:
        folder: in PEFT's format.
        names: names of the base model.
        mark: computes the base's fingerprint.

    Raises: UserError where it is not a plain LoRA adapter, or belongs to another base model.
    """
    path = folder / WEIGHTS
    if missing := [name for name in (CONFIG, WEIGHTS) if not is_file(folder / name)]:
        inside = f"; give {folder / 'adapter'}" if is_file(folder / "adapter" / CONFIG) else ""
        raise UserError(f"policy.adapter={folder}: it lacks {', '.join(missing)}, which PEFT writes{inside}")
    found = folders.sizes_in(path)
    lora = read_config(folder, found)
    wanted = sizes(decoder, lora)
    if different := sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)):
        name = different[0]
        raise UserError(
            f"{path}: {name} is {found.get(name, 'missing')}, and policy.model={names[0]} needs "
            f"{wanted.get(name, 'none')}: give the model that the adapter was trained on, with adapters in all layers"
        )
    check_base(folder, names, mark)
    tensors = folders.read_tensors(path)

    def stored(name: str, linear: Linear) -> tuple[Tensor, Tensor]:
        down, up = (tensors[f"{PREFIX}{name}.lora_{side}.weight"].float() for side in "AB")
        return torch.empty_like(down), torch.empty_like(up)

    _attach(decoder, lora, stored)
    for name, linear in decoder.adapted():
        assert linear.adapter is not None
        for side, parameter in (("A", linear.adapter.down), ("B", linear.adapter.up)):
            key = f"{PREFIX}{name}.lora_{side}.weight"
            folders.fill(parameter, tensors[key], f"{path}: {key}")
    return lora


def check_without(name: str) -> None:
    """Refuse a model with adapters in its folder where none are asked for: `transformers` would add them."""
    if name in gguf.PACKAGED or name.endswith(".gguf"):
        return  # its folder is made here
    folder = folders.locate(name)
    if is_file(folder / CONFIG):
        raise UserError(
            f"policy.model={name}: its folder also holds adapters, which transformers would add: give them with "
            f"policy.adapter={folder}, or move {CONFIG} elsewhere"
        )


def tell_template(folder: Path, ours: ChatTemplate | None) -> None:
    """Say in one line that a chat template beside the adapters is not that of the model, by which it is asked."""
    theirs = read_template(folder, read_settings(folder), None)
    if theirs is None or (ours is not None and ours.text == theirs.text) or not ranks.first():
        return
    file = theirs.where if theirs.where.endswith(".jinja") else "FILE.jinja, with its text"
    warn(
        f"policy.adapter={folder}: its own chat template is not read, and policy.model has "
        f"{'none' if ours is None else 'another'}: to ask by it, give policy.template={file}"
    )


def read_config(folder: Path, sizes: Sizes) -> Lora:
    """Read rank, alpha and targets; any key that makes it more than a plain LoRA is refused by name.

    sizes: names of the weights with their sizes.
    """
    config = read_json(folder / CONFIG)
    fields = Fields(config, str(folder / CONFIG))
    for key, value in config.items():
        usual = value is False or value in (None, "none", {}, [])  # 0 would be the first layer
        usual = value in STARTS if key == "init_lora_weights" else usual
        usual = value == "LORA" if key == "peft_type" else usual
        if not usual and (key not in PLAIN or key == "peft_type"):
            given = f"{key[:40]} is {json.dumps(value)[:40]}"
            raise UserError(f"{fields.where}: {given}, and only plain LoRA adapters are read: use another one")
    rank = fields.whole("r")
    alpha = fields.number("lora_alpha", 1e-9, 1e9)
    if fields.flag("use_rslora"):  # its scale is alpha / √rank (arXiv:2312.03732)
        alpha *= math.sqrt(rank)
    return Lora(rank, alpha, _targets(fields, sizes))


def _targets(fields: Fields, sizes: Sizes) -> tuple[str, ...]:
    """The layers by the last part of their names: PEFT may list each with its path. The weights say whether all do.

    A text is a pattern, or all-linear; which layers it means can be read off the names of the weights.
    """
    named = fields.content.get("target_modules")
    listed = list(sizes) if isinstance(named, str) else named if isinstance(named, list) else []
    found = {str(x).partition(".lora_")[0].rpartition(".")[2] for x in listed}
    if strange := sorted(found - {*ALL}) or ([] if found else [str(named)]):
        raise UserError(
            f"{fields.where}: target_modules means {ascii(strange[0])[:40]}, and adapters are read in "
            f"{', '.join(ALL)}: use another one"
        )
    return tuple(name for name in ALL if name in found)


def check_base(folder: Path, names: tuple[str, ...], mark: Callable[[], str]) -> None:
    """Refuse an adapter of another base model: by rlkit's fingerprint, or without one by the name of the base."""
    path = folder / CONFIG
    was = read_json(folder / BASE).get(MARK)
    base = read_json(path).get("base_model_name_or_path")
    shown = str(base)[:100]
    if was is not None and was != mark():
        raise UserError(f"{folder}: the adapter was trained on {shown}, and policy.model={names[0]} has other weights")
    if was is not None or not base:
        return
    if not isinstance(base, str) or Path(base).name.lower() not in {Path(name).name.lower() for name in names}:
        raise UserError(
            f"{path}: the adapter was trained on {shown}, and policy.model is {names[0]}: give that model, or write "
            "where it is now into base_model_name_or_path"
        )
