"""Small random models of architectures that are not native, as `transformers` writes them."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from support.small_model import TOKENIZER

VOCAB = len(TOKENIZER)
SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 0}
GEMMA = {**SIZES, "head_dim": 8}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "gemma": GEMMA,
    "gemma2": {**GEMMA, "sliding_window": 8, "query_pre_attn_scalar": 8, "final_logit_softcapping": 2.0},
    "gemma3_text": {**GEMMA, "sliding_window": 8, "num_hidden_layers": 6},  # every sixth looks at everything
    "phi": SIZES,
    "phi3": {**SIZES, "pad_token_id": 0},
    "opt": {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.5},
    "mixtral": {**GEMMA, "num_local_experts": 4},
    "granite": {**SIZES, "logits_scaling": 3.0},
    "lfm2": {**SIZES, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
}


def peer(kind: str, **changes: Any) -> PreTrainedModel:
    """Random, with distributions far from uniform; biases and gains are random, too."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **{**KINDS.get(kind, SIZES), "eos_token_id": TOKENIZER.eos_id, **changes})
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) * 0.1 if parameter.dim() == 1 else 4 * parameter
    return model


def write(folder: Path, kind: str, **changes: Any) -> PreTrainedModel:
    """A folder with the tokenizer of the tests; the model that is in it."""
    model = peer(kind, **changes)
    model.save_pretrained(folder)
    TOKENIZER.save(folder)
    return model
