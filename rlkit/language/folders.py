"""Hugging Face-format folders: config.json, model.safetensors (whole or sharded), tokenizer.json."""

import json
import math
import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rlkit import ranks, streamed
from rlkit.api import UserError
from rlkit.disk import is_file
from rlkit.language import gguf, sharding
from rlkit.language.causal import Causal
from rlkit.language.decoder import Decoder
from rlkit.language.files import Json, check_file, read_json
from rlkit.language.shape import ARCHITECTURES, Shape, rotary_frequencies
from rlkit.language.sizes import Sizes, check_sizes, tell_unused
from rlkit.language.tokenizer import Tokenizer
from rlkit.paths import home
from rlkit.waiting import counted

TINY = Path(__file__).parent / "tiny"
VALUE = "value_head.safetensors"  # the value head of a critic
REWARD = "reward_head.safetensors"  # the head of a reward model
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTED = "adapter_config.json"  # says that a folder holds adapters
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"  # names of weights
FLOATS = {"F64", "F32", "F16", "BF16"}  # type names of safetensors

Stored = Literal["auto", "float32", "bfloat16"]


def locate(name: str) -> Path:
    """The folder of `tiny`, `smollm2`, a folder, a GGUF file or a hub id; it is checked to hold a checkpoint."""
    if name == "tiny":
        folder = TINY
    elif name in gguf.PACKAGED:
        folder = gguf.folder_of(gguf.packaged(name))
    elif name.endswith(".gguf") and os.path.isfile(home(name)):
        folder = gguf.folder_of(home(name))
    elif os.path.isdir(home(name)):  # False where the text cannot be a path, for example because it is very long
        folder = home(name)
        if is_file(folder / "model" / "config.json"):  # a run folder
            folder = folder / "model"
    elif is_hub_id(name):
        folder = _download(name)
    else:
        given = name if len(name) <= 80 else f"{name[:77]}..."
        rule = "give tiny, smollm2, a checkpoint folder, a .gguf file, or a hub id such as org/name"
        raise UserError(f"model {given!r}: no such folder; {rule}")
    weights = is_file(folder / WHOLE) or is_file(folder / INDEX)
    missing = [file for file in ("config.json", "tokenizer.json") if not is_file(folder / file)]
    missing += [] if weights else [WHOLE]
    if missing:
        adapted = is_file(folder / ADAPTED)
        hint = f"; for adapters give policy.adapter={folder}, and their base as policy.model" if adapted else ""
        raise UserError(f"model {name!r}: {folder} is not a checkpoint folder: it lacks {', '.join(missing)}{hint}")
    return folder


def is_hub_id(name: str) -> bool:
    """Whether a name is that of a model on the hub, and nothing here is called so."""
    is_id = re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not name.startswith((".", "~"))
    return is_id and not os.path.exists(home(name))


def _download(name: str) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError:
        raise UserError(
            f"model {name!r} is not a local folder, and a hub id needs a package: pip install huggingface_hub"
        ) from None
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.jinja"]))
    except (OSError, HfHubHTTPError, HFValidationError, ConnectionError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"model {name!r} is not a local folder and could not be loaded from the hub ({type(error).__name__}: "
            f"{reason}); check the id and the connection, or give a local folder"
        ) from None


def read_shape(folder: Path) -> Shape:
    return Shape.read(read_json(folder / "config.json"), str(folder / "config.json"))


def read_decoder(
    folder: Path, dtype: torch.dtype = torch.float32, stored: Stored = "float32", shared: torch.device | None = None
) -> Decoder:
    """The decoder in a folder, with its weights.

    stored: precision of the parameters; auto: bfloat16 for those that are bfloat16 in the file, without loss.
    shared: the device for each rank's shards of the weights; a rank holds at most one whole weight at a time.

    Raises: UserError where files do not fit together or into memory; this is checked before memory is allocated.
    """
    shape, files = read_shape(folder), weight_files(folder)
    sizes = {file: sizes_in(file) for file in files}
    unused = check_sizes(shape, folder, sizes)
    if HEAD in unused:
        _check_tied(folder, {name: file for file, found in sizes.items() for name in found})
    tell_unused(folder, unused - {HEAD})
    with torch.device("meta"):  # no memory is allocated yet
        decoder = Decoder(shape, dtype)
    decoder.frequencies = rotary_frequencies(shape)
    if shared is not None:
        sharding.share_out(decoder, shared)
    parts: dict[str, Tensor] = {}
    wanted = {name for name, _ in decoder.named_parameters()}
    places = {name: file for file in files for name in sorted(wanted & sizes_in(file).keys())}
    for name, file in counted(places.items()):
        with opened(file) as content:  # reopened for each: pages that were read count as memory while it is open
            tensor = content.get_tensor(name)
            narrow = stored == "bfloat16" or (stored == "auto" and tensor.dtype == torch.bfloat16)
            parameter = nn.Parameter(torch.empty(tensor.shape, dtype=torch.bfloat16 if narrow else torch.float32))
            fill(parameter, tensor, f"{file}: {name}")
            del tensor
        if shared is not None:
            parts[name] = sharding.part(parameter, shared, dtype if dtype == torch.float64 else parameter.dtype)
        else:
            module, _, last = name.rpartition(".")
            setattr(decoder.get_submodule(module), last, parameter)
    if shared is not None:
        sharding.adopt(decoder, parts)
    return decoder


def _check_tied(folder: Path, places: Mapping[str, Path]) -> None:
    """Refuse a head that config.json ties and that differs from the embedding: transformers ties equal weights only."""
    with opened(places[HEAD]) as one, opened(places[EMBEDDING]) as other:
        head, embedding = one.get_slice(HEAD), other.get_slice(EMBEDDING)
        parts = [slice(at, at + 2**12) for at in range(0, embedding.get_shape()[0], 2**12)]  # little memory at a time
        equal = head.get_shape() == embedding.get_shape()
        if not equal or not all(torch.equal(head[part].double(), embedding[part].double()) for part in parts):
            raise UserError(
                f"{folder}: tie_word_embeddings is true, and {HEAD} is not the embedding: write false there into "
                "config.json"
            )


def weight_files(folder: Path) -> list[Path]:
    """The files of weights; an index may only name files of its own folder.

    A whole file is read in place of the parts in the index, as in transformers: it was saved over them.
    """
    found = read_json(folder / INDEX).get("weight_map", {})
    names = list(found.values()) if isinstance(found, dict) else [found]
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*\.safetensors", name):
            given = str(name)[:40]
            raise UserError(
                f"{folder / INDEX}: weight_map names {given!r}; it must map names of weights to .safetensors files of "
                "this folder: copy the checkpoint again"
            )
    if WHOLE not in names and is_file(folder / WHOLE):
        return [folder / WHOLE]
    return [folder / name for name in sorted(set(names)) or [WHOLE]]


def sizes_in(path: Path) -> Sizes:
    """The sizes of the tensors in a safetensors file, from its header alone."""
    check_file(path)
    sizes, kinds = {}, {}
    with opened(path) as file:
        for name in file.keys():
            part = file.get_slice(name)
            sizes[name], kinds[name] = list(part.get_shape()), part.get_dtype()
    if strange := [name for name in sizes if kinds[name] not in FLOATS]:
        raise UserError(
            f"{path}: {strange[0]} is of type {kinds[strange[0]]}, and weights must be of {', '.join(sorted(FLOATS))}: "
            "quantized models are not supported"
        )
    return sizes


def fill(parameter: nn.Parameter, tensor: Tensor, where: str) -> None:
    """Copy a tensor of the same size into a parameter."""
    with torch.no_grad():
        parameter.copy_(tensor)
        if not all(math.isfinite(x) for x in torch.stack(parameter.aminmax()).tolist()):  # NaN if any is NaN
            raise UserError(f"{where} holds numbers that are not finite: copy the checkpoint again")


def read_head(head: nn.Linear, path: Path) -> None:
    """Fill a scalar head from the file that `write` saved."""
    wanted = {name: list(parameter.shape) for name, parameter in head.named_parameters()}
    found = sizes_in(path)
    if found != wanted:
        raise UserError(f"{path}: it holds {shown(found)}, and the model's head is {shown(wanted)}: copy it again")
    for name, tensor in read_tensors(path).items():
        fill(head.get_parameter(name), tensor, f"{path}: {name}")


def shown(sizes: Sizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in sorted(sizes.items())[:4]) or "nothing"


def read_tensors(path: Path) -> dict[str, Tensor]:
    with opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}


@contextmanager
def opened(path: Path) -> Iterator[Any]:  # Any: the library has no types
    """An open safetensors file; errors are reported in one line."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error}); copy the checkpoint again") from None


def write(folder: Path, decoder: Causal, tokenizer: Tokenizer, dtype: torch.dtype) -> None:
    """Write a folder that `transformers` can load."""
    if ranks.layered():
        _write_parts(folder / WHOLE, decoder, dtype)
        if not ranks.first():
            return
    else:
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / WHOLE, {name: w.to(dtype) for name, w in decoder.weights()})
    tokenizer.save(folder)
    ids = {**tokenizer.generation, "eos_token_id": list(tokenizer.stop_ids), "pad_token_id": tokenizer.pad_id}
    config = {**decoder.config, "dtype": str(dtype).removeprefix("torch.")}
    config.pop("torch_dtype", None)  # transformers 4 calls dtype so
    for file, content in (("config.json", config), ("generation_config.json", ids)):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _write_parts(path: Path, decoder: Causal, dtype: torch.dtype) -> None:
    """The same file for sharded weights: each rank contributes its part, and the first rank writes."""
    listed = [(name, dtype, p.shape) for name, p in decoder.named_parameters() if ".adapter." not in name]
    whole = (w.detach().to(dtype) for _, w in decoder.weights())
    try:
        if ranks.first():
            path.parent.mkdir(parents=True, exist_ok=True)
            streamed.write(path, listed, whole, {"format": "pt"})
    finally:
        deque(whole, maxlen=0)


def save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)  # by the umask; safetensors chooses its own
    plain = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})
    path.chmod(permissions)


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
        **({"sliding_window": None} if kind == "mistral" else {}),
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": end,
        "initializer_range": 0.02,
        "use_cache": True,
    }
