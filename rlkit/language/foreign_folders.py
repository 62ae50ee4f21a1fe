"""Folders of foreign architectures, checked before `transformers` builds anything from them."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rlkit import memory
from rlkit.errors import UserError
from rlkit.language import folders
from rlkit.language.files import MOST, Json, read_json
from rlkit.language.foreign import LENGTHS, Foreign
from rlkit.language.shape import ARCHITECTURES
from rlkit.language.sizes import tell_unused
from rlkit.waiting import counted

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# Keys of config.json that are ignored: they say how, or with whose code, the model is computed.
IDLE = {"attn_implementation", "experts_implementation", "transformers_weights", "fusion_config", "distributed_config"}
IDLE |= {"attribute_map"}  # it gives one of these keys another name
IDLE |= {"architectures", "dtype", "torch_dtype", "transformers_version", "model_type"}
IDLE |= {"num_labels", "id2label", "label2id"}  # of a classifier: a number alone becomes dictionaries of that size
REPEATED = re.compile("(layers?|experts?|blocks?|depth)$")  # keys that say how often something is built
EXPERTS = re.compile("experts?$")  # all experts of a layer may be one tensor, one row each
LONGEST = 2**20  # most positions without a weight for each: some architectures build tables of them
TABLES = ("marian", "pegasus", "roformer", "xlm")  # these build their tables as Python lists, number by number
BY_LENGTH = ("dynamic", "longrope", "su")  # kinds of positions that depend on the length of the longest row


def is_foreign(folder: Path) -> bool:
    """Whether config.json names an architecture that is not native."""
    kind = read_json(folder / "config.json").get("model_type")
    return isinstance(kind, str) and kind not in ARCHITECTURES


def read_foreign(folder: Path, dtype: torch.dtype = torch.float32) -> Foreign:
    """The model in a folder with float32 weights, which computes in `dtype`.

    Raises: UserError where it is not supported, or where files do not fit together or into memory.
    """
    path, files = folder / "config.json", folders.weight_files(folder)
    source, sizes = read_json(path), [folders.sizes_in(file) for file in files]
    check_installed(source, path)
    check_config(source, path, [size for part in sizes for size in part.values()])
    with _asked(path):
        from transformers import AutoModelForCausalLM

        config = _config(source)
        if config.get_text_config() is not config:  # it is multimodal
            raise _unknown(source, path)
        with torch.device("meta"):  # sizes only, without memory
            sketch = AutoModelForCausalLM.from_config(config)
        head = sketch.get_output_embeddings()
        if sketch._is_stateful or not isinstance(head, nn.Linear):
            raise _unknown(source, path)
        count = sum(x.numel() for x in (*sketch.parameters(), *sketch.buffers()))
        count = max(count, sum(math.prod(size) for part in sizes for size in part.values()))
        memory.check(4 * count, f"{folder}: a model of {count:,} numbers", "take a smaller one")
        model = Foreign(
            _filled(type(sketch), config, folder, dict(x for file in files for x in _tensors(file))), source
        )
        if not model.computes_alike():
            raise _unknown(source, path)
    if dtype == torch.float64:  # torch multiplies by all experts at once in lower precisions only
        model.whole.set_experts_implementation("eager")
    model.dtype = dtype
    return model


def check_installed(source: Json, path: Path) -> None:
    """Refuse an architecture that `transformers` does not know, or any if it is not installed."""
    start = f"{path}: model_type is {source['model_type'][:40]!r}; native are {', '.join(ARCHITECTURES)}"
    try:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as known
    except ImportError:
        raise UserError(f"{start}, and others need a package: pip install 'transformers>=5.5'") from None
    if source["model_type"] not in known:
        raise UserError(f"{start}, and transformers knows no causal language model of this type: use another model")


def check_config(source: Json, path: Path, sizes: Sequence[Sequence[int]]) -> None:
    """Refuse custom code, quantized weights, and sizes that would take too much time or memory to build.

    sizes: sizes of the weights in the files.
    """
    if strange := [key for key in ("auto_map", "quantization_config") if source.get(key)]:
        raise UserError(f"{path}: {strange[0]} means code of its own or quantized weights; use another model")
    if source["model_type"] in TABLES:
        raise UserError(
            f"{path}: model_type is {source['model_type']!r}, whose table of positions takes transformers too long to "
            "make: use another model"
        )
    for key, value in _inside(source):
        most = _most(key, sizes)
        if isinstance(value, int) and abs(value) > most:
            given = f"{key} is {str(value)[:20]}, and {most} is the most"
            raise UserError(f"{path}: {given} with {len(sizes)} weights: restore it from where the model came from")
        if value in BY_LENGTH:
            raise UserError(
                f"{path}: {key} is {value!r}: the probability of a token would depend on the rows that are read with "
                "it; use another model"
            )


def _most(key: str, sizes: Sequence[Sequence[int]]) -> int:
    """The largest number allowed for this key of config.json, given weights of these sizes."""
    if not REPEATED.search(key) and key not in LENGTHS:
        return MOST
    rows = max((size[0] for size in sizes if size), default=0)
    if key in LENGTHS:
        return max(LONGEST, rows)
    return max(len(sizes), rows) if EXPERTS.search(key) else len(sizes)


def _inside(content: object, key: str = "") -> Iterator[tuple[str, object]]:
    """The values in a JSON object, each with the nearest key above it."""
    if isinstance(content, dict | list):
        for name, x in content.items() if isinstance(content, dict) else ((key, x) for x in content):
            yield from _inside(x, name)
    elif not isinstance(content, bool):
        yield key, content


def _config(source: Json) -> "PreTrainedConfig":
    """The configuration without ignored keys and without dropout."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(source["model_type"], **_plain(source))
    config.update({key: 0.0 for key, x in config.to_dict().items() if "drop" in key and isinstance(x, float)})
    config.dtype = torch.float32
    return config


def _plain(content: Json) -> Json:
    """The content without ignored keys, in nested configurations as well."""
    inner = {key: _plain(x) if isinstance(x, dict) else x for key, x in content.items()}
    return {key: x for key, x in inner.items() if key not in IDLE and not key.startswith("_")}


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a file in float32."""
    for name, size in counted(sorted(folders.sizes_in(file).items())):
        parameter = nn.Parameter(torch.empty(size))
        if parameter.numel():  # reopened for each weight: pages that were read count as memory while the file is open
            with folders.opened(file) as content:
                folders.fill(parameter, content.get_tensor(name), f"{file}: {name}")
        yield name, parameter.data


def _filled(
    kind: "type[PreTrainedModel]", config: "PreTrainedConfig", folder: Path, tensors: dict[str, Tensor]
) -> "PreTrainedModel":
    """The model filled with these weights; `transformers` knows the names of earlier versions."""
    whole, info = kind.from_pretrained(
        None, config=config, state_dict=tensors, ignore_mismatched_sizes=True, output_loading_info=True
    )
    if other := sorted(info["mismatched_keys"]):
        name, found, wanted = other[0]
        raise UserError(
            f"{folder}: {name} is {list(found)}, but config.json means {list(wanted)}; "
            "config and weights are of different models"
        )
    if missing := sorted(info["missing_keys"]):
        raise UserError(f"{folder}: {len(missing)} weights are missing, such as {missing[0]}: copy it again")
    tell_unused(folder, info["unexpected_keys"])  # no error: some models come with layers that transformers lacks
    return whole


@contextmanager
def _asked(path: Path) -> Iterator[None]:
    """Call `transformers` without logs, progress bars and the global RNG; its errors become one line."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    except UserError:
        raise
    except Exception as error:  # its many architectures raise all kinds of errors
        told = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: transformers cannot build this model ({type(error).__name__}: {told}); "
            "restore it from where the model came from, or use another model"
        ) from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _unknown(source: Json, path: Path) -> UserError:
    return UserError(
        f"{path}: model_type is {source['model_type'][:40]!r}, which computes logits, or keeps what it has read, by a "
        "rule that rlkit does not know: use another model"
    )
