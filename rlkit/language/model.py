"""The language model as a policy: it completes prompts, and computes log-probabilities of completions."""

import copy
import os
from pathlib import Path
from typing import Literal, Self

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.buffers import flatten_groups, in_parts
from rlkit.errors import UserError
from rlkit.gaps import following
from rlkit.language import adapters, folders, sharding
from rlkit.language.backbone import scatter
from rlkit.language.causal import Causal
from rlkit.language.decoder import Decoder
from rlkit.language.engine import Engine, Native
from rlkit.language.foreign import Foreign
from rlkit.language.foreign_folders import is_foreign, read_foreign
from rlkit.language.lockstep import Lockstep
from rlkit.language.shape import ARCHITECTURES, Shape
from rlkit.language.source import fingerprint
from rlkit.language.tokenizer import Tokenizer
from rlkit.language.writer import Writer
from rlkit.policies.base import frozen_copy
from rlkit.seeding import generator as named_generator

Dtype = Literal["auto", "float32", "bfloat16", "float64"]


class LanguageModel(Writer):
    """π(token | tokens before it) = softmax(logits / temperature), with an optional value head on the hidden states."""

    head_file = folders.VALUE

    def __init__(
        self,
        decoder: Causal,
        tokenizer: Tokenizer,
        temperature: float = 1.0,
        value_head: bool = False,
        trainable: str = "all",
        rows: int = 256,
        seed: int = 0,
    ) -> None:
        super().__init__(decoder, tokenizer, seed)
        self.temperature, self.rows = temperature, rows
        self.base = ""  # name of the base model of the adapters
        self.engine: Engine = Lockstep() if isinstance(decoder, Foreign) else Native()
        self.value_head = self.make_head() if value_head else None
        if trainable == "attention":
            for name, parameter in decoder.named_parameters():
                parameter.requires_grad_(decoder.in_attention(name))
            if not any(parameter.requires_grad for parameter in decoder.parameters()):
                raise UserError("policy.trainable=attention: this model has no known weights of attention; give all")

    def native(self, key: str) -> Decoder:
        """The decoder, for features of native models only; `key` names the feature."""
        if not isinstance(self.decoder, Decoder):
            kind = self.decoder.config.get("model_type")
            raise UserError(
                f"{key} is for models that are native ({', '.join(ARCHITECTURES)}), and {kind} is computed by "
                "transformers: leave it out, or use another model"
            )
        return self.decoder

    # Loading and saving

    @classmethod
    def load(
        cls,
        name: str | Path,
        temperature: float = 1.0,
        value_head: bool = False,
        trainable: str = "all",
        dtype: Dtype = "auto",
        rows: int = 256,
        seed: int = 0,
        device: str | torch.device = "cpu",
        template: str | None = None,
        stored: folders.Stored = "float32",
        shard: sharding.Shard = "none",
    ) -> "LanguageModel":
        """Load `tiny`, a Hugging Face-format folder, or a model from the hub.

        template: see `Tokenizer.load`; stored: see `folders.read_decoder`; shard: see `sharding.is_asked`.
        """
        folder, device = folders.locate(str(name)), torch.device(device)
        precision, foreign = _dtype(dtype, device), is_foreign(folder)
        shape = None if foreign else folders.read_shape(folder)
        shared = sharding.is_asked(shard, shape, stored == "float32", device)
        decoder: Causal
        if foreign:
            decoder = read_foreign(folder, precision)
        else:
            decoder = folders.read_decoder(folder, precision, stored, device if shared else None)
        tokenizer = Tokenizer.load(folder, decoder.vocab, template)
        model = cls(decoder, tokenizer, temperature, value_head, trainable, rows, seed)
        if model.value_head is not None and (folder / cls.head_file).is_file():
            folders.read_head(model.value_head, folder / cls.head_file)
        model.base = str(name) if folders.is_hub_id(str(name)) else os.path.abspath(folder)  # as PEFT calls it
        kind = torch.float64 if precision == torch.float64 else None
        if not shared:
            return model.to(device, kind)
        decoder.frequencies = decoder.frequencies.to(device, kind)
        if model.value_head is not None:
            model.value_head.to(device, kind)
        return model

    @classmethod
    def fresh(
        cls,
        tokenizer: Tokenizer,
        width: int = 96,
        layers: int = 3,
        heads: int = 3,
        inner: int = 256,
        kv_heads: int | None = None,
        context: int = 512,
        kind: str = "llama",
        tied: bool = True,
        seed: int = 0,
        temperature: float = 1.0,
        value_head: bool = False,
        rows: int = 256,
    ) -> "LanguageModel":
        """An untrained model; the default shape is that of `tiny`, 0.4 M parameters."""
        config = folders.fresh_config(
            kind, len(tokenizer), width, layers, heads, kv_heads or heads, inner, context, tokenizer.eos_id
        )
        decoder = Decoder(Shape.read({**config, "tie_word_embeddings": tied})).initialize(
            named_generator(seed, "initialise")
        )
        return cls(decoder, tokenizer, temperature, value_head, rows=rows, seed=seed)

    def save_adapter(self, folder: Path) -> None:
        """Save the adapters in PEFT's format; their base is the model that they were trained on."""
        assert self.lora is not None
        adapters.write(folder, self.native("policy.lora"), self.lora, self.base, self.base_mark())

    def base_mark(self) -> str:
        """Fingerprint of the adapters' base weights; it is the same for float32 and bfloat16 storage."""
        frozen = [p for name, p in self.decoder.named_parameters() if ".adapter." not in name]
        return fingerprint(frozen, torch.bfloat16)

    def reference(self) -> Self:
        """A frozen copy without a value head; frozen weights are shared, adapters that add nothing yet are left out."""
        if self.sharded:
            # torch cannot copy sharded parameters.
            memo = {id(self.decoder): sharding.twin(self.native("policy.shard")), id(self.value_head): None}
            frozen = copy.deepcopy(self, memo)
        else:
            frozen = frozen_copy(self, *(p for p in self.parameters() if not p.requires_grad))
            frozen.value_head = None  # as with shards, so that any number of ranks reads the checkpoint
        for _, linear in list(frozen.decoder.adapted()):
            if linear.adapter is not None and not linear.adapter.up.any():
                linear.adapter = None
        return frozen

    def save(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Save a Hugging Face-format folder; the value head goes into a separate file."""
        self.write(Path(folder), self.value_head, dtype)

    # Learning

    def evaluate(self, batch: TensorDict, entropy: bool = True) -> dict[str, Tensor]:
        """log π(action) and the entropy (and the value) at each masked position, [B, T], zero elsewhere.

        entropy=False skips the entropy. Rows of similar length are processed in chunks, so memory for logits does not
        grow with B·T (see `token_log_probs`).
        """
        hidden, where = self.hidden(batch)
        targets = batch["action"].flatten()[where]
        log_prob, entropies = self.decoder.log_probs(hidden, targets, self.temperature, entropy)
        out = {"log_prob": log_prob, "entropy": entropies} if entropy else {"log_prob": log_prob}
        if self.value_head is not None:
            out["value"] = self.value_head(hidden.to(self.value_head.weight.dtype))[:, 0]
        return {key: scatter(value, where, batch["mask"].shape) for key, value in out.items()}

    @torch.no_grad()
    def record(self, rollout: TensorDict) -> dict[str, Tensor]:
        """Values and log-probabilities of the behavior policy at its own steps, [..., T], 0 where the mask is False.

        value, next_value        with a value head: V at acted steps, and V at the next acted step of the row, 0 after
                                 the last. Tokens that others wrote between two turns count as no time: the value of the
                                 next decision already includes them.
        log_prob, sampler_log_prob   if the engine computes differently from this model (another precision, another
                                 program): log_prob is this model's, and sampler_log_prob is the engine's.
        """
        mask = rollout["mask"]
        found: dict[str, Tensor] = {}
        if self.value_head is None and self.engine.exact:
            return found
        rows = flatten_groups(rollout.select("observation", "action", "mask"))
        known = {key: x.view(mask.shape) for key, x in in_parts(self._known, rows, self.micro_steps).items()}
        if self.value_head is not None:
            found |= {"value": known["value"], "next_value": torch.where(mask, following(known["value"], mask), 0.0)}
        if not self.engine.exact:
            found |= {"log_prob": known["log_prob"], "sampler_log_prob": rollout["log_prob"]}
        return found

    def _known(self, batch: TensorDict) -> dict[str, Tensor]:
        """The value, if there is a value head, and the log-probability, if the engine's differs from this model's."""
        hidden, where = self.hidden(batch)
        found = {}
        if self.value_head is not None:
            found["value"] = self.value_head(hidden.to(self.value_head.weight.dtype))[:, 0]
        if not self.engine.exact:
            targets = batch["action"].flatten()[where]
            found["log_prob"] = self.decoder.log_probs(hidden, targets, self.temperature, entropy=False)[0]
        return {key: scatter(x, where, batch["mask"].shape) for key, x in found.items()}


def _dtype(name: Dtype, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}[name]
