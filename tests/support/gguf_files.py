"""GGUF files as llama.cpp's converter writes them, of small models."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlkit.language.gguf import EPS, SIZES, TENSORS
from rlkit.language.model import LanguageModel

OTHER = {ours: theirs for theirs, ours in TENSORS.items()}


def in_pairs(x: torch.Tensor, heads: int) -> torch.Tensor:
    """The order of rows that the converter gives to queries and keys of a Llama."""
    return x.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def write(path: Path, model: LanguageModel, quantization: str = "F32", **fields: Any) -> Path:
    """A model and its byte-level tokenizer; `fields` replace or add keys, None leaves one out, a tensor is added."""
    import gguf

    shape = model.decoder.shape
    writer = gguf.GGUFWriter(path, fields.pop("general.architecture", shape.kind))
    known = {f"{shape.kind}.{theirs}": shape.source[ours] for ours, theirs in (SIZES | {"rms_norm_eps": EPS}).items()}
    known |= {f"{shape.kind}.rope.freq_base": float(shape.source["rope_theta"]), **vocabulary(model)}
    known[f"{shape.kind}.attention.key_length"] = shape.head_dim
    for key, value in (known | fields).items():
        if isinstance(value, torch.Tensor):
            writer.add_tensor(f"{key}.weight", value.numpy())
        elif value is not None:
            writer.add_key_value(key, value, *_kind(value))
    for name, parameter in model.decoder.named_parameters():
        value, parts = parameter.detach(), name.split(".")
        if shape.kind == "llama" and parts[-2] in ("q_proj", "k_proj"):
            value = in_pairs(value, shape.heads if parts[-2] == "q_proj" else shape.kv_heads)
        layer, inner = (
            (f"blk.{parts[2]}.", ".".join(parts[3:-1])) if parts[1] == "layers" else ("", ".".join(parts[:-1]))
        )
        kind = gguf.GGMLQuantizationType[quantization if value.dim() == 2 else "F32"]
        data = gguf.quantize(np.ascontiguousarray(value.numpy()), kind)
        writer.add_tensor(f"{layer}{OTHER[inner]}.{parts[-1]}", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def vocabulary(model: LanguageModel) -> dict[str, Any]:
    import json

    core = json.loads(model.tokenizer.core.to_str())
    tokens = sorted(model.tokenizer.core.get_vocab(), key=model.tokenizer.core.token_to_id)
    special = {token["content"] for token in core["added_tokens"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in core["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": model.tokenizer.eos_id,
    }


def _kind(value: Any) -> tuple[Any, ...]:
    from gguf import GGUFValueType as Kind

    one = {bool: Kind.BOOL, int: Kind.UINT32, float: Kind.FLOAT32, str: Kind.STRING}
    return (Kind.ARRAY, one[type(value[0])]) if isinstance(value, list) else (one[type(value)],)
