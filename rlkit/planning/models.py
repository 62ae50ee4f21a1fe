"""The shapes of popular models, by name or from a folder, and their numbers of parameters."""

import os
from dataclasses import dataclass
from pathlib import Path

from rlkit.disk import is_file
from rlkit.errors import UserError
from rlkit.language.files import Json, read_json
from rlkit.language.shape import Shape
from rlkit.paths import home
from rlkit.settings.plugins import nearest

# From config.json on the hub: width, inner width, layers, heads, key-value heads, head size, vocabulary, tied.
QWEN2 = {
    "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 64, 151936, True),
    "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 128, 151936, True),
    "qwen2.5-3b": (2048, 11008, 36, 16, 2, 128, 151936, True),
    "qwen2.5-7b": (3584, 18944, 28, 28, 4, 128, 152064, False),
    "qwen2.5-14b": (5120, 13824, 48, 40, 8, 128, 152064, False),
    "qwen2.5-32b": (5120, 27648, 64, 40, 8, 128, 152064, False),
    "qwen2.5-72b": (8192, 29568, 80, 64, 8, 128, 152064, False),
}
QWEN3 = {
    "qwen3-0.6b": (1024, 3072, 28, 16, 8, 128, 151936, True),
    "qwen3-1.7b": (2048, 6144, 28, 16, 8, 128, 151936, True),
    "qwen3-4b": (2560, 9728, 36, 32, 8, 128, 151936, True),
    "qwen3-8b": (4096, 12288, 36, 32, 8, 128, 151936, False),
    "qwen3-14b": (5120, 17408, 40, 40, 8, 128, 151936, False),
    "qwen3-32b": (5120, 25600, 64, 64, 8, 128, 151936, False),
}
LLAMA = {
    "smollm2-135m": (576, 1536, 30, 9, 3, 64, 49152, True),
    "llama3.2-1b": (2048, 8192, 16, 32, 8, 64, 128256, True),
    "llama3.2-3b": (3072, 8192, 28, 24, 8, 128, 128256, True),
    "llama3.1-8b": (4096, 14336, 32, 32, 8, 128, 128256, False),
    "llama3.1-70b": (8192, 28672, 80, 64, 8, 128, 128256, False),
    "deepseek-7b": (4096, 11008, 30, 32, 32, 128, 102400, False),
}
FAMILIES = {"qwen2": QWEN2, "qwen3": QWEN3, "llama": LLAMA}
KINDS = {name: kind for kind, family in FAMILIES.items() for name in family}
# A size alone means the most popular model of this size for training.
SHORT = {name.partition("-")[2]: name for name in (*QWEN2, "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "llama3.1-8b")}
SHORT |= {"1b": "llama3.2-1b", "70b": "llama3.1-70b", "135m": "smollm2-135m", "smollm2": "smollm2-135m"}


def find(name: str) -> tuple[str, Shape]:
    """The name and the shape of a model, found by its name, its size, its folder or its config.json.

    Raises: UserError where there is none; it lists the nearest names.
    """
    if name.endswith(".json") or os.path.isdir(home(name)) or "/" in name:
        return name, of_file(name)
    full = SHORT.get(name.lower(), name.lower())
    if full not in KINDS:
        close = nearest(name.lower(), [*SHORT, *KINDS])
        raise UserError(f"no model '{name}': {close}; or give a folder with a config.json, as ./NAME")
    return full, Shape.read(config(full), full)


def config(name: str) -> Json:
    """The config.json of a known model, as far as it matters here."""
    width, inner, layers, heads, kv_heads, head_dim, vocab, tied = FAMILIES[KINDS[name]][name]
    return {
        "model_type": KINDS[name],
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
    }


def of_file(name: str) -> Shape:
    """The shape in a config.json, in a model's folder or in a run's folder."""
    place = home(name)
    inside = [place] if name.endswith(".json") else [place / "config.json", place / "model" / "config.json"]
    there = next((path for path in inside if is_file(path)), None)
    if there is None:
        raise UserError(f"model={name}: there is no config.json: give a folder that has one, or a size such as 7b")
    return Shape.read(read_json(Path(there)), str(there))


@dataclass(frozen=True)
class Sizes:
    """Numbers of parameters and bytes, computed from a shape."""

    layers: int
    width: int
    layer: int  # parameters in the matrices of one layer
    head: int  # parameters of the output matrix, which may be the embedding
    total: int  # all parameters
    attended: int  # sum of head sizes over all heads: numbers per token
    stored: int  # bytes of keys and values per token in bfloat16, over all layers

    @property
    def multiplied(self) -> int:
        """Parameters by which every token is multiplied."""
        return self.layers * self.layer + self.head


def sizes(shape: Shape) -> Sizes:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer = shape.width * (2 * queries + 2 * keys + 3 * shape.inner)
    small = 2 * shape.width + shape.qk_norm * 2 * shape.head_dim + shape.qkv_bias * (queries + 2 * keys)
    small += shape.output_bias * shape.width + shape.mlp_bias * (2 * shape.inner + shape.width)
    head = shape.vocab * shape.width
    return Sizes(
        layers=shape.layers,
        width=shape.width,
        layer=layer,
        head=head,
        total=shape.layers * (layer + small) + shape.width + head * (1 if shape.tied else 2),
        attended=queries,
        stored=2 * 2 * keys * shape.layers,
    )


def adapters(shape: Shape, rank: int) -> int:
    """Parameters of adapters of this rank beside all matrices of all layers."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sides = 2 * (shape.width + queries) + 2 * (shape.width + keys) + 3 * (shape.width + shape.inner)
    return rank * shape.layers * sides
