"""Edits of the files of a model folder, from a seed: every field that transformers reads may say something else."""

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

ABSENT = object()  # the value of a key that an edit takes away
Edit = tuple[str, Any]

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
POSITIONS = [
    *(None, {}, {"rope_type": "default"}, {"type": "default"}, {"rope_theta": 77.0}, {"rope_theta": None}),
    {"rope_type": "default", "rope_theta": 100.0},
    {"rope_type": "default", "rope_theta": 1e4, "factor": 4.0, "attention_factor": 2.0},
    {"rope_type": "default", "type": "linear", "factor": 2.0, "rope_theta": 10.0},
    {"type": "linear", "factor": 2.0},
    {"type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 1e4},
    {**LLAMA3, "original_max_position_embeddings": 32, "rope_theta": 500.0},
    {**LLAMA3, "original_max_position_embeddings": 16},
    LLAMA3,
    {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
    {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
    {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    {"full_attention": {"rope_type": "default", "rope_theta": 55.0}},
    {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 55.0}},
    {"rope_type": "mrope", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
]
WINDOWS = [["full_attention"] * 2, ["sliding_attention", "full_attention"], ["sliding_attention"] * 2]
CONFIG: dict[str, list[Any]] = {
    "rope_parameters": POSITIONS,
    "rope_scaling": POSITIONS,
    "rope_theta": [ABSENT, None, 10.0, 1000000],
    "original_max_position_embeddings": [16, None],
    "partial_rotary_factor": [0.5, 1.0, None],
    "hidden_act": [ABSENT, "gelu", "relu", "swish", None],
    "hidden_activation": ["gelu"],
    "rms_norm_eps": [ABSENT, None, 1e-2, 1, 0],
    "layer_norm_eps": [0.5],
    "tie_word_embeddings": [ABSENT, None, True, False],
    "head_dim": [ABSENT, None, 16, 4],
    "attention_bias": [ABSENT, None, True, False],
    "mlp_bias": [True, False, None],
    "qkv_bias": [False, True],
    "use_bias": [True],
    "num_key_value_heads": [ABSENT, None, 1, 4],
    "num_attention_heads": [2, 8],
    "num_hidden_layers": [1, 3],
    "max_position_embeddings": [ABSENT, None, 16],
    "attention_dropout": [0.5, None],
    "sliding_window": [ABSENT, None, 4, 4096, 0],
    "use_sliding_window": [True, False, None],
    "max_window_layers": [0, 1, 28],
    "layer_types": [None, [], ["full_attention"], ["chunked_attention", "full_attention"], *WINDOWS],
    "use_qk_norm": [True, False],
    "final_logit_softcapping": [2.0],
    "attn_logit_softcapping": [2.0],
    "logit_scale": [0.5],
    "logits_scaling": [2.0],
    "query_pre_attn_scalar": [64],
    "embedding_multiplier": [3.0],
    "residual_multiplier": [0.2],
    "attention_multiplier": [0.5],
    "dtype": ["float16", "bfloat16", None],
    "torch_dtype": ["float16", None],
    "quantization_config": [None, {"quant_method": "fp8"}],
    "auto_map": [{}, {"AutoModelForCausalLM": "x.y"}],
    "is_causal": [False, True],
    "is_decoder": [False],
    "use_bidirectional_attention": [True, "all"],
    "pretraining_tp": [2],
    "chunk_size_feed_forward": [1],
    "architectures": [None, [], ["LlamaModel"]],
    "model_type": ["llama", "qwen2", "qwen3", "mistral"],
    "pad_token_id": [None, 0, -1],
    "zzz": [3],
}

FLAGS = {"lstrip": True, "rstrip": True, "normalized": True, "single_word": False, "__type": "AddedToken"}
TOKENS = ["<s>", None, ABSENT, {"content": "<s>", **FLAGS}, {"content": "<|n|>", **FLAGS}]
SETTINGS: dict[str, list[Any]] = {
    "tokenizer_class": [ABSENT, "TokenizersBackend", "PreTrainedTokenizer"],
    "add_bos_token": [True, False],
    "add_eos_token": [True],
    "add_prefix_space": [True, False],
    "clean_up_tokenization_spaces": [True, ABSENT],
    "model_max_length": [4],
    "padding_side": ["left"],
    "truncation": [True],
    "max_length": [3],
    "do_lower_case": [True],
    "spaces_between_special_tokens": [True],
    "sp_model_kwargs": [{"enable_sampling": True}],
    "added_tokens_decoder": [{}],
    "split_special_tokens": [True, False],
    "bos_token": TOKENS,
    "pad_token": TOKENS,
    "mask_token": TOKENS,
    "eos_token": ["</s>", {"content": "</s>", **FLAGS}],
    "unk_token": ["<|u|>", None],
    "image_token": ["<|x|>", "a"],
    "additional_special_tokens": [["<|x|>", "cat"], None, []],
    "extra_special_tokens": [["<|x|>"], {"image_token": "<|x|>"}, ["the"], {}, [{"content": "<|y|>", **FLAGS}]],
    "model_specific_special_tokens": [{"image_token": "<|x|>"}],
}


def _put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        inner: Any = content
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return edit


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPACES = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
CUT = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
NEW = {"id": 0, "content": " dog", "single_word": False, "lstrip": True, "rstrip": True, "normalized": False}
RULES: dict[str, Callable[[dict[str, Any]], None]] = {
    "cut": _put("truncation", value=CUT),
    "no rules": _put("normalizer", value=None),
    "lower": _put("normalizer", value={"type": "Lowercase"}),
    "stripped": _put("normalizer", value={"type": "Strip", "strip_left": True, "strip_right": True}),
    "composed": _put("normalizer", value={"type": "NFKC"}),
    "spaces": _put("normalizer", value={"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}),
    "before": _put("normalizer", value={"type": "Prepend", "prepend": "a"}),
    "whole": _put("pre_tokenizer", value=None),
    "bytes": _put("pre_tokenizer", value=BYTES),
    "words": _put("pre_tokenizer", value={"type": "Whitespace"}),
    "pieces": _put("pre_tokenizer", value=SPACES),
    "as it is": _put("post_processor", value=None),
    "joined": _put("decoder", value=None),
    "from bytes": _put("decoder", value=BYTES),
    "from pieces": _put("decoder", value={"type": "WordPiece", "prefix": "##", "cleanup": True}),
    "merges": _put("model", "ignore_merges", value=True),
    "letters": _put("model", "byte_fallback", value=True),
    "unknown": _put("model", "fuse_unk", value=False),
    "left": _put("added_tokens", 0, "lstrip", value=True),
    "right": _put("added_tokens", 0, "rstrip", value=True),
    "read first": _put("added_tokens", 0, "normalized", value=True),
    "alone": _put("added_tokens", 0, "single_word", value=True),
    "shown": _put("added_tokens", 0, "special", value=False),
    "one more": lambda x: x["added_tokens"].append({**NEW, "id": len(x["model"]["vocab"]) + 9, "special": False}),
}


def each(edits: dict[str, list[Any]]) -> list[Edit]:
    return [(key, value) for key, values in edits.items() for value in values]


def drawn(edits: list[Edit], seed: int, pairs: int) -> Iterator[list[Edit]]:
    """Each edit alone, then so many pairs."""
    random = Random(seed)
    yield from ([edit] for edit in edits)
    yield from (random.sample(edits, 2) for _ in range(pairs))


def edited(content: dict[str, Any], edits: list[Edit]) -> dict[str, Any]:
    found = copy.deepcopy(content)
    for key, value in edits:
        found[key] = value
        if value is ABSENT:
            del found[key]
    return found
