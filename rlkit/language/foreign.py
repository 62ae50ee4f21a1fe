"""Architectures that `transformers` computes: causal networks with the interface of the native decoder.

Dropout is off in training as well, so a policy with unchanged weights gives a text the same probability again.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rlkit.errors import UserError
from rlkit.language.causal import Causal
from rlkit.language.files import Json
from rlkit.language.logprob import token_log_probs
from rlkit.language.precision import product

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel
    from transformers.modeling_layers import GradientCheckpointingLayer

CONTEXT = 2048  # tokens, if config.json gives no context
LENGTHS = ("max_position_embeddings", "max_seq_len", "max_sequence_length", "n_positions", "n_ctx", "seq_length")
PROBE = 9  # tokens of the test that this file computes the model correctly


def again(function: Callable[..., Tensor], *args: Tensor) -> Tensor:
    """The value of the function, recomputed for the gradient."""
    out: Tensor = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
    return out


def rearrange(cache: "DynamicCache", rows: Tensor) -> None:
    """Replace the rows of a cache by these rows of it; a row may be repeated.

    Every kind of layer supports this; not every kind can repeat its rows directly (LFM2's convolutions cannot).
    """
    cache.reorder_cache(rows)


class Foreign(Causal):
    """A causal language model of `transformers`. Rows are padded on the right, which earlier tokens do not see."""

    def __init__(self, whole: "PreTrainedModel", source: Json, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.whole, self.source, self.dtype = whole.eval(), source, dtype
        self.vocab, self.width = self.head.shape
        said = whole.config.to_dict()
        names = whole.config.attribute_map
        lengths = [said.get(names.get(name, name)) for name in LENGTHS]
        self.context = min((length for length in lengths if isinstance(length, int) and length > 0), default=CONTEXT)
        self.cap: float | None = said.get("final_logit_softcapping")  # Gemma's
        # Cohere's and Granite's
        self.scale: float = (said.get("logit_scale") or 1.0) / (said.get("logits_scaling") or 1.0)
        self.recomputes = False

    def train(self, mode: bool = True) -> "Foreign":
        """Changes nothing: see the docstring of this file."""
        return self

    @property
    def _head(self) -> nn.Linear:
        head: nn.Linear = self.whole.get_output_embeddings()
        return head

    @property
    def head(self) -> Tensor:
        return self._head.weight

    @property
    def config(self) -> Json:
        return {**self.source, "architectures": [type(self.whole).__name__]}

    @torch.no_grad()
    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The names are those of published folders: `transformers` joins the weights of experts, for example."""
        from transformers.core_model_loading import revert_weight_conversion

        once: dict[int, tuple[str, Tensor]] = {}  # a tied weight has two names
        for name, x in self.whole.state_dict(keep_vars=True).items():
            once.setdefault(id(x), (name, x))
        for name, x in revert_weight_conversion(self.whole, dict(once.values())).items():
            yield name, x if id(x) in once else x.clone()  # parts of one weight share its memory

    def initialize(self, generator: torch.Generator) -> "Foreign":
        """Initialize as `transformers` does for this architecture."""
        from transformers import AutoModelForCausalLM

        seed = int(torch.randint(2**62, (1,), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            fresh = AutoModelForCausalLM.from_config(self.whole.config)
        self.whole.load_state_dict(fresh.state_dict())
        return self

    def recompute(self, on: bool) -> None:
        self.recomputes = on
        blocks = self._blocks()
        if on and not blocks:
            kind = self.whole.config.model_type
            raise UserError(
                f"policy.gradient_checkpointing=true: transformers has no such thing for {kind}; leave it out"
            )
        for block in blocks:  # there is no dropout, so training mode has no effect on them
            block.training, block._gradient_checkpointing_func = on, again
            block.gradient_checkpointing = False  # see `hidden`

    def _blocks(self) -> "list[GradientCheckpointingLayer]":
        from transformers.modeling_layers import GradientCheckpointingLayer

        return [module for module in self.whole.modules() if isinstance(module, GradientCheckpointingLayer)]

    def hidden(self, tokens: Tensor, cache: "DynamicCache | None" = None) -> Tensor:
        """Hidden states [B, T, d] of tokens [B, T] that follow those in the cache, if there is one."""
        blocks = self._blocks() if self.recomputes and torch.is_grad_enabled() else []  # generation needs the cache
        for block in blocks:
            block.gradient_checkpointing = True
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            out = self.whole.base_model(input_ids=tokens, past_key_values=cache, use_cache=cache is not None)
        for block in blocks:
            block.gradient_checkpointing = False
        states: Tensor = out.last_hidden_state
        return states

    def read(self, text: Tensor, mask: Tensor, stop: Tensor, wanted: Tensor, steps: int | None = None) -> Tensor:
        """As in `Causal.read`: rows of similar length are read together, at most `steps` tokens including padding.

        Only the activations of one such part are in memory: all parts but one are recomputed for their gradient.
        """
        stop = stop.clamp(min=1)
        parts = _parts(stop, steps)
        number = (wanted.flatten().cumsum(0) - 1).view(wanted.shape)
        states, order = [], []
        for rows in parts:
            end = int(stop[rows].max())
            chosen = wanted[rows, :end]
            order.append(number[rows, :end][chosen])
            # The backward pass starts with the last part, so its activations are freed before others are recomputed.
            if rows is not parts[-1] and torch.is_grad_enabled():
                states.append(again(self._wanted, text[rows, :end], chosen))
            else:
                states.append(self._wanted(text[rows, :end], chosen))
        return F.embedding(torch.cat(order).argsort(), torch.cat(states))

    def _wanted(self, tokens: Tensor, chosen: Tensor) -> Tensor:
        return self.hidden(tokens)[chosen]

    def log_probs(self, hidden: Tensor, targets: Tensor, temperature: float, entropy: bool) -> tuple[Tensor, Tensor]:
        temperature, bias = temperature / self.scale, self._head.bias
        return token_log_probs(hidden, self.head, targets, temperature, entropy=entropy, bias=bias, cap=self.cap)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] in float32."""
        rows = hidden.reshape(-1, hidden.shape[-1])
        logits = product(rows, self.head.to(rows.dtype).T).view(*hidden.shape[:-1], -1)  # as in `log_probs`
        logits = logits if self._head.bias is None else logits + self._head.bias
        return self.scale * (logits if self.cap is None else self.cap * (logits / self.cap).tanh())

    def start(self) -> "DynamicCache":
        """An empty cache of keys and values."""
        from transformers import DynamicCache

        return DynamicCache(config=self.whole.config)

    def step(self, tokens: Tensor, cache: "DynamicCache") -> Tensor:
        """Logits [B, V] of the next token after the tokens [B, T], which are added to the cache."""
        return self.logits(self.hidden(tokens, cache)[:, -1])

    @torch.no_grad()
    def computes_alike(self) -> bool:
        """Whether hidden states, head and cache give the same logits as the whole model."""
        tokens = torch.arange(PROBE)[None] * 7 % self.vocab
        theirs = self.whole(input_ids=tokens, use_cache=False).logits[0].float()
        cache, parts = self.start(), torch.split(tokens, [PROBE - 4, 1, 1, 1, 1], 1)
        stepped = [self.step(part, cache)[0] for part in parts[:3]]
        rearrange(cache, torch.tensor([0, 0]))  # as an engine does: several rows at once, some of which continue
        stepped.append(self.step(torch.cat((tokens[:, :1], parts[3])), cache)[1])
        rearrange(cache, torch.tensor([1]))
        stepped.append(self.step(parts[4], cache)[0])
        ours = torch.cat((self.logits(self.hidden(tokens))[0], torch.stack(stepped)))
        wanted = torch.cat((theirs, theirs[-5:]))
        return bool(((ours - wanted).abs() <= 1e-3 * (1 + wanted.abs().max())).all())


def _parts(stop: Tensor, steps: int | None) -> list[Tensor]:
    """Indices of rows of similar length that are read together; stop: the length of each row."""
    order, lengths = stop.argsort(stable=True), stop.sort().values.tolist()
    sizes = [0]
    for length in lengths:
        if sizes[-1] and steps is not None and (sizes[-1] + 1) * length > steps:
            sizes.append(0)
        sizes[-1] += 1
    parts: tuple[Tensor, ...] = torch.split(order, sizes)
    return list(parts)
