"""Hugging Face-format folders: config.json, model.safetensors (whole or sharded), tokenizer.json."""

import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rlkit.api import UserError
from rlkit.language.decoder import Decoder, Shape
from rlkit.language.tokenizer import Json, Tokenizer, read_json

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
TINY = Path(__file__).parent / "tiny"
VALUE = "value_head.safetensors"  # V of a critic
REWARD = "reward_head.safetensors"  # r of a reward model
INDEX = "model.safetensors.index.json"


def locate(name: str) -> Path:
    """The folder behind `tiny`, a path or a hub id, checked to hold a checkpoint."""
    if name == "tiny":
        folder = TINY
    elif Path(name).expanduser().is_dir():
        folder = Path(name).expanduser()
        if (folder / "model" / "config.json").is_file():  # a run folder
            folder = folder / "model"
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not name.startswith((".", "~")):
        folder = _download(name)
    else:
        raise UserError(f"model {name!r}: no such folder; give tiny, a checkpoint folder, or a hub id such as org/name")
    weights = (folder / "model.safetensors").is_file() or (folder / INDEX).is_file()
    missing = [file for file in ("config.json", "tokenizer.json") if not (folder / file).is_file()]
    missing += [] if weights else ["model.safetensors"]
    if missing:
        raise UserError(f"model {name!r}: {folder} is no checkpoint folder: it lacks {', '.join(missing)}")
    return folder


def _download(name: str) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError:
        raise UserError(
            f"model {name!r} is no local folder, and a hub id needs a package: pip install huggingface_hub"
        ) from None
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except (OSError, HfHubHTTPError, HFValidationError, ConnectionError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"model {name!r} is no local folder and cannot be had from the hub ({type(error).__name__}: {reason}); "
            "check the id and the connection, or give a local folder"
        ) from None


def read_shape(folder: Path) -> Shape:
    return Shape.read(read_json(folder / "config.json"), str(folder / "config.json"))


def read_weights(decoder: Decoder, folder: Path) -> None:
    """Fill the decoder's parameters, in their own precision."""
    files = sorted(set(read_json(folder / INDEX).get("weight_map", {}).values())) or ["model.safetensors"]
    waiting = dict(decoder.named_parameters())
    for file in files:
        for name, tensor in read_tensors(folder / file, set(waiting)).items():
            parameter = waiting.pop(name)
            if tensor.shape != parameter.shape:
                raise UserError(
                    f"{folder / file}: {name} is {list(tensor.shape)}, but config.json means {list(parameter.shape)}; "
                    "config and weights are of different models"
                )
            with torch.no_grad():
                parameter.copy_(tensor)
    if waiting:
        raise UserError(f"{folder}: {len(waiting)} weights are missing, such as {min(waiting)}: copy it again")


def read_tensors(path: Path, names: set[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or those of them that are named."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys() if names is None or name in names}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error}); copy the checkpoint again") from None


def write(folder: Path, decoder: Decoder, tokenizer: Tokenizer, dtype: torch.dtype) -> None:
    """A folder that `transformers` loads, too."""
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / "model.safetensors", {name: p.to(dtype) for name, p in decoder.named_parameters()})
    tokenizer.save(folder)
    ids = {"eos_token_id": list(tokenizer.stop_ids), "pad_token_id": tokenizer.pad_id}
    config = {**decoder.shape.source, "dtype": str(dtype).removeprefix("torch.")}
    config["architectures"] = [ARCHITECTURES[decoder.shape.kind]]
    config.pop("torch_dtype", None)  # the name of dtype in transformers 4
    for file, content in (("config.json", config), ("generation_config.json", ids)):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save(path: Path, tensors: dict[str, Tensor]) -> None:
    save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, path, metadata={"format": "pt"})
    path.chmod(0o644)  # the library writes files that only their owner may read


def fresh_config(
    kind: str, vocab: int, width: int, layers: int, heads: int, kv_heads: int, inner: int, context: int, end: int
) -> Json:
    """The `config.json` of a new model."""
    return {
        "architectures": [ARCHITECTURES.get(kind, kind)],
        "model_type": kind,
        "vocab_size": vocab,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width // heads,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": end,
        "initializer_range": 0.02,
        "use_cache": True,
    }
