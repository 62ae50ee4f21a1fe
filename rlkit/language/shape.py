"""The sizes of a decoder in a Hugging Face `config.json`, checked before anything is built from them."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlkit.api import UserError
from rlkit.language.files import MOST, Fields, Json

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
}
OTHER_RULES = ("auto_map", "dual_chunk_attention_config")  # custom code; attention in chunks
NEVER = "sliding windows, activations but silu and quantized weights"
CONTEXT = 2**31 - 1  # memory does not depend on it


@dataclass(frozen=True)
class Shape:
    """The decoder's part of a Hugging Face `config.json`; `source` is the file, written back on save."""

    kind: str
    vocab: int
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    eps: float
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope: Json
    source: Json = field(repr=False)

    @classmethod
    def read(cls, config: Json, where: str = "config.json") -> "Shape":
        """Read a `config.json` of transformers 4 (`rope_theta`) or 5 (`rope_parameters`).

        Raises: UserError where a field is missing, of the wrong type, out of range, or not supported.
        """
        kind = str(config.get("model_type", "missing"))
        if kind not in ARCHITECTURES:
            raise UserError(
                f"{where}: model_type is {kind[:40]!r}; native are {', '.join(ARCHITECTURES)}: "
                "use a model of one of these families"
            )
        layers = config.get("layer_types") or []
        windows = "sliding_attention" in layers if isinstance(layers, list) else True
        if (
            windows
            or config.get("use_sliding_window")
            or config.get("hidden_act", "silu") != "silu"
            or config.get("quantization_config")
            or (kind == "mistral" and looks_back_less(config))  # a window of Qwen2 is idle unless it is used
        ):
            raise UserError(f"{where}: {NEVER} are not supported; use another model")
        strange = [key for key in OTHER_RULES if config.get(key)]
        strange += ["is_causal"] if config.get("is_causal") is False else []  # transformers then looks ahead
        if strange:
            raise UserError(
                f"{where}: {strange[0]} says that the model computes by other rules than {kind}; use another model"
            )
        return cls._build(kind, Fields(config, where))

    @classmethod
    def _build(cls, kind: str, read: Fields) -> "Shape":
        heads, width = read.whole("num_attention_heads"), read.whole("hidden_size")
        own = {key for key, value in read.content.items() if value is not None}  # null: the default
        kv_heads = read.whole("num_key_value_heads", most=heads) if "num_key_value_heads" in own else heads
        dim = read.whole("head_dim", most=MOST // heads) if "head_dim" in own else width // heads
        if heads % kv_heads or dim % 2 or not dim:
            raise UserError(
                f"{read.where}: {heads} heads of size {dim} with {kv_heads} key-value heads cannot be: the size must "
                "be even, and the second number must divide the first; restore it from where the model came from"
            )
        bias = kind != "mistral" and read.flag("attention_bias")  # Mistral has none, whatever its configuration says
        return cls(
            kind=kind,
            vocab=read.whole("vocab_size"),
            width=width,
            inner=read.whole("intermediate_size"),
            layers=read.whole("num_hidden_layers", most=1000),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            context=read.whole("max_position_embeddings", 2048, most=CONTEXT),
            eps=read.number("rms_norm_eps", 1e-30, 1.0, 1e-6),
            tied=read.flag("tie_word_embeddings"),
            qkv_bias=kind == "qwen2" or bias,
            output_bias=kind != "qwen2" and bias,
            mlp_bias=kind == "llama" and read.flag("mlp_bias"),
            qk_norm=kind == "qwen3",
            rope=_rope(read),
            source=read.content,
        )


def looks_back_less(config: Json) -> bool:
    """Whether a Mistral's window is shorter than its context: it is of 4096 tokens unless it says otherwise."""
    window, context = config.get("sliding_window", 4096), config.get("max_position_embeddings", 2048)
    if window is None:
        return False
    return not isinstance(window, int) or not isinstance(context, int) or window < context


def _rope(read: Fields) -> Json:
    """The rotary settings in one form, from either generation of transformers.

    Where both are given, `rope_scaling` replaces `rope_parameters`, as in transformers 5: model cards say to add it.
    """
    given = read.mapping("rope_scaling") or read.mapping("rope_parameters")
    rope: Json = {"rope_theta": read.content.get("rope_theta", 10_000.0), **given}
    rope["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    known, part = rope["rope_type"] in ("default", "llama3"), rope.get("partial_rotary_factor", 1.0)
    if not known or part != 1.0:
        said = str(part if known else rope["rope_type"])[:40]
        kind = f"partial_rotary_factor is {said}" if known else f"rope_type is {said!r}"
        raise UserError(f"{read.where}: {kind}, and default and llama3 on whole heads only are supported")
    inside = Fields(rope, read.where)
    rope["rope_theta"] = inside.number("rope_theta", 1.0, 1e15)
    if rope["rope_type"] == "llama3":
        if (original := read.content.get("original_max_position_embeddings")) is not None:  # as in transformers
            rope["original_max_position_embeddings"] = original
        low = inside.number("low_freq_factor", 1e-3, 1e6)
        inside.number("high_freq_factor", math.nextafter(low, math.inf), 1e9)
        inside.number("factor", 1e-3, 1e9)
        inside.number("original_max_position_embeddings", 1, CONTEXT)
    return rope


def rotary_frequencies(shape: Shape) -> Tensor:
    """θ^(-2i/D) for i < D/2, [D/2]; `llama3` slows the low frequencies by `factor`, with a smooth transition."""
    index = torch.arange(0, shape.head_dim, 2, dtype=torch.int64).float()
    frequency: Tensor = 1.0 / (shape.rope["rope_theta"] ** (index / shape.head_dim))
    if shape.rope["rope_type"] == "default":
        return frequency
    low, high = shape.rope["low_freq_factor"], shape.rope["high_freq_factor"]
    turns = shape.rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    slowed: Tensor = frequency * (smooth + (1 - smooth) / shape.rope["factor"])
    return slowed
