"""The language model as a policy: prompts to completions, and log-probabilities of what it wrote."""

import copy
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
        self.base = ""  # where the weights are that adapters are beside of
        self.engine: Engine = Lockstep() if isinstance(decoder, Foreign) else Native()
        self.value_head = self.make_head() if value_head else None
        if trainable == "attention":
            for name, parameter in decoder.named_parameters():
                parameter.requires_grad_(decoder.in_attention(name))
            if not any(parameter.requires_grad for parameter in decoder.parameters()):
                raise UserError("policy.trainable=attention: no weight of this model is said to be of it; give all")

    def native(self, key: str) -> Decoder:
        """The decoder, for what only rlkit's own can do; `key` says what that is."""
        if not isinstance(self.decoder, Decoder):
            kind = self.decoder.config.get("model_type")
            raise UserError(
                f"{key} is for models that are native ({', '.join(ARCHITECTURES)}), and {kind} is computed by "
                "transformers: leave it out, or use another model"
            )
        return self.decoder

    # Where models come from and go to

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
        """From `tiny`, a Hugging Face-format folder, or a hub id.

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
        model.base = str(folder)
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
        """An untrained model; the default is the shape of `tiny`, 0.4 M parameters."""
        config = folders.fresh_config(
            kind, len(tokenizer), width, layers, heads, kv_heads or heads, inner, context, tokenizer.eos_id
        )
        decoder = Decoder(Shape.read({**config, "tie_word_embeddings": tied})).initialize(
            named_generator(seed, "initialise")
        )
        return cls(decoder, tokenizer, temperature, value_head, rows=rows, seed=seed)

    def save_adapter(self, folder: Path) -> None:
        """The adapters in PEFT's format; the base is the model that they were trained on."""
        assert self.lora is not None
        adapters.write(folder, self.native("policy.lora"), self.lora, self.base, self.base_mark())

    def base_mark(self) -> str:
        """By what the base of adapters is known again, whether it is kept in float32 or in bfloat16."""
        frozen = [p for name, p in self.decoder.named_parameters() if ".adapter." not in name]
        return fingerprint(frozen, torch.bfloat16)

    def reference(self) -> Self:
        """A copy of what is trained, on the same frozen weights; adapters that add nothing yet are left out."""
        if self.sharded:
            # What is shared out cannot be copied by torch; a reference judges nothing, so it needs no value head.
            memo = {id(self.decoder): sharding.twin(self.native("policy.shard")), id(self.value_head): None}
            frozen = copy.deepcopy(self, memo)
        else:
            frozen = frozen_copy(self, *(p for p in self.parameters() if not p.requires_grad))
        for _, linear in list(frozen.decoder.adapted()):
            if linear.adapter is not None and not linear.adapter.up.any():
                linear.adapter = None
        return frozen

    def save(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """A Hugging Face-format folder; the value head goes into a file of its own."""
        self.write(Path(folder), self.value_head, dtype)

    # Learn

    def evaluate(self, batch: TensorDict, entropy: bool = True) -> dict[str, Tensor]:
        """log π(action) and the policy's entropy (and the value) at each masked position, [B, T], zero elsewhere.

        entropy=False leaves the entropy out. Rows are read in chunks of similar length; memory for logits does not grow
        with B·T (see `token_log_probs`).
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
        """What the behavior policy knows of its steps, [..., T], 0 where the mask is False.

        value, next_value        with a value head: V at acted steps, and V at the row's next acted one, 0 after the
                                 last. What others wrote between two turns takes no time of its own: the next decision's
                                 value already knows it.
        log_prob, sampler_log_prob   where the engine computes otherwise than this model (another precision, another
                                 program): log_prob is this model's, and what the engine said keeps its own name.
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
        """The value, where there is a head, and the log-probability, where the engine's is not this model's."""
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
