"""A decoder of the Llama and Qwen family, with the weight names of Hugging Face checkpoints.

Pre-norm residual blocks: x += Attention(RMSNorm(x)); x += SwiGLU(RMSNorm(x)), with rotary positions
(RoFormer, arXiv:2104.09864), grouped-query attention (arXiv:2305.13245), RMSNorm (arXiv:1910.07467) and
SwiGLU (arXiv:2002.05202); Qwen2 adds q/k/v biases, Qwen3 normalizes queries and keys per head.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlkit.buffers import beginnings
from rlkit.language.cache import Cache, Stored
from rlkit.language.causal import Causal
from rlkit.language.files import Json
from rlkit.language.linear import Linear
from rlkit.language.logprob import token_log_probs
from rlkit.language.packing import Packing, pack
from rlkit.language.precision import operand, product
from rlkit.language.shape import ARCHITECTURES, Shape, rotary_frequencies
from rlkit.shards import fill, is_shard, whole


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x_i, x_{i+D/2}) by their angles; x [B, T, H, D], cos and sin [B or 1, T, 1, D].

    sin has the sign of the rotation matrix in it: (-sin θ, sin θ).
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class RMSNorm(nn.Module):
    """x / √(mean(x²) + ε) · weight over the last dimension."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    def __init__(self, shape: Shape, layer: int):
        super().__init__()
        self.layer, self.dim = layer, shape.head_dim
        self.grouped = shape.kv_heads != shape.heads
        outer, inner = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = Linear(shape.width, outer, bias=shape.qkv_bias)
        self.k_proj = Linear(shape.width, inner, bias=shape.qkv_bias)
        self.v_proj = Linear(shape.width, inner, bias=shape.qkv_bias)
        self.o_proj = Linear(outer, shape.width, bias=shape.output_bias)
        self.q_norm = RMSNorm(shape.head_dim, shape.eps) if shape.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(shape.head_dim, shape.eps) if shape.qk_norm else nn.Identity()

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | Packing | None, keep: Stored | None
    ) -> Tensor:
        heads = (*x.shape[:2], -1, self.dim)
        query = rotate(self.q_norm(self.q_proj(x).view(heads)), cos, sin).transpose(1, 2)
        key = rotate(self.k_norm(self.k_proj(x).view(heads)), cos, sin).transpose(1, 2)
        value = self.v_proj(x).view(heads).transpose(1, 2)
        if cache is not None:
            out = cache.attend(self.layer, query, key, value)
        else:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.grouped)
        if keep is not None:
            keep.append((key, value))
        joined: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return joined


class MLP(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = Linear(shape.width, shape.inner, bias=shape.mlp_bias)
        self.up_proj = Linear(shape.width, shape.inner, bias=shape.mlp_bias)
        self.down_proj = Linear(shape.inner, shape.width, bias=shape.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    def __init__(self, shape: Shape, layer: int):
        super().__init__()
        self.self_attn, self.mlp = Attention(shape, layer), MLP(shape)
        self.input_layernorm = RMSNorm(shape.width, shape.eps)
        self.post_attention_layernorm = RMSNorm(shape.width, shape.eps)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | Packing | None, keep: Stored | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache, keep)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Body(nn.Module):
    """Embedding, blocks and the final norm: the module that Hugging Face calls `model`."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.eps)


class Decoder(Causal):
    """Tokens to hidden states. The caller applies the language-model head `head`, piece by piece."""

    frequencies: Tensor

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.shape, self.dtype = shape, dtype
        self.vocab, self.width, self.context = shape.vocab, shape.width, shape.context
        self.checkpointing = False  # in training, store only the inputs of blocks and recompute the rest
        self.model = Body(shape)
        self.lm_head = None if shape.tied else Linear(shape.width, shape.vocab, bias=False)
        self.register_buffer("frequencies", rotary_frequencies(shape), persistent=False)

    @property
    def head(self) -> Tensor:
        """[V, d]"""
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight

    @property
    def config(self) -> Json:
        return {**self.shape.source, "architectures": [ARCHITECTURES[self.shape.kind]]}

    def recompute(self, on: bool) -> None:
        self.checkpointing = on

    def adapted(self) -> Iterator[tuple[str, Linear]]:
        for name, module in self.named_modules():
            if isinstance(module, Linear) and module.adapter is not None:
                yield name, module

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Each weight under its Hugging Face name, with its adapter merged if it has one."""
        adapted = {f"{name}.weight": linear for name, linear in self.adapted()}
        for name, parameter in self.named_parameters():
            if ".adapter." not in name:
                yield name, adapted[name].merged() if name in adapted else whole(parameter)

    def initialize(self, generator: torch.Generator) -> "Decoder":
        """Normal(0, 0.02) matrices, those into the residual stream divided by √(2·layers) (GPT-2); gains of 1."""
        for name, parameter in self.named_parameters():
            x = torch.empty(parameter.shape, dtype=parameter.dtype) if is_shard(parameter) else parameter
            if name.endswith("bias"):
                nn.init.zeros_(x)
            elif x.dim() == 1:
                nn.init.ones_(x)
            else:
                writes = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / math.sqrt(2 * self.shape.layers) if writes else 0.02
                nn.init.normal_(x, 0.0, std, generator=generator)
            if is_shard(parameter):
                fill(parameter, x)
        return self

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        cache: Cache | Packing | None = None,
        keep: Stored | None = None,
    ) -> Tensor:
        """Hidden states [B, T, d] of tokens [B, T], with causal attention. There is no padding mask: pad on the right.

        positions: [B, T] or [1, T], by default 0..T-1.
        cache: attends in place of the causal mask. A Cache: T = 1, the next token of each row. A Packing: B = 1, all
            tokens of all rows in one line.
        keep: a list that receives each layer's (keys, values) [B, kv_heads, T, head_dim].
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        angle = (positions[..., None].float() * self.frequencies)[:, :, None]
        cos, sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)
        cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        x = self.model.embed_tokens(tokens).to(self.dtype)
        for block in self.model.layers:
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, cos, sin, cache, keep, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, cos, sin, cache, keep)
        hidden: Tensor = self.model.norm(x)
        return hidden

    def read(self, text: Tensor, mask: Tensor, stop: Tensor, wanted: Tensor, steps: int | None = None) -> Tensor:
        """See `Causal.read`: a beginning that rows share, up to the first action, is read once, padding never."""
        begin, label = beginnings(text, mask)
        packing = pack(text, begin + 1, stop.clamp(min=1), label)
        states: Tensor = self(packing.tokens, packing.positions, packing)
        return F.embedding(packing.place[wanted[:, : packing.place.shape[1]]], states[0])

    def log_probs(self, hidden: Tensor, targets: Tensor, temperature: float, entropy: bool) -> tuple[Tensor, Tensor]:
        return token_log_probs(hidden, whole(self.head), targets, temperature, entropy=entropy)

    def logits(self, hidden: Tensor, head: Tensor | None = None) -> Tensor:
        """Logits [..., V] in float32, whatever the precision of the hidden states.

        head: `precision.operand` of the head, for a caller that multiplies by it many times.
        """
        rows = hidden.reshape(-1, hidden.shape[-1])
        matrix = operand(self.head, rows.dtype) if head is None else head
        return product(rows, matrix.T).view(*hidden.shape[:-1], -1)
