"""The language model as a policy: prompts to completions, and log-probabilities of what it wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit.api import Count, Positive, UserError
from rlkit.buffers import flatten_groups, in_parts
from rlkit.language import checkpoint
from rlkit.language.decoder import Decoder, Shape
from rlkit.language.generate import Rule, generate
from rlkit.language.logprob import token_log_probs
from rlkit.language.tokenizer import Tokenizer
from rlkit.seeding import generator as named_generator

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Model:
    model: str = "tiny"  # tiny, a checkpoint folder, or a hub id such as Qwen/Qwen2.5-0.5B
    temperature: Positive = 1.0  # of sampling, and of every log-probability
    trainable: Literal["all", "attention"] = "all"  # which weights learn; attention: the q, k, v and o projections
    dtype: Dtype = "auto"  # what it computes in, parameters stay float32; auto: bfloat16 on a GPU
    rows: Count = 256  # completions that are written at the same time
    fresh: bool = False  # start from random weights, in the shape and with the tokenizer of `model`
    save_dtype: Literal["float32", "bfloat16"] = "float32"  # of the weights in the run folder's model/


class LanguageModel(nn.Module):
    """π(token | tokens before it) = softmax(logits / temperature), with an optional value head on the hidden states."""

    micro_steps: int | None = 4096  # tokens whose activations are alive at once in training, padding included
    save_dtype: torch.dtype = torch.float32
    name = "language model"
    head_file = checkpoint.VALUE  # where the scalar head is kept
    memoryless = False  # a token depends on its row, so rows stay whole

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        temperature: float = 1.0,
        value_head: bool = False,
        trainable: str = "all",
        rows: int = 256,
        seed: int = 0,
    ):
        super().__init__()
        self.decoder, self.tokenizer = decoder, tokenizer
        self.temperature, self.rows = temperature, rows
        self.generator = named_generator(seed, "generate")
        self.value_head = nn.Linear(decoder.shape.width, 1) if value_head else None
        if self.value_head is not None:
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)
        if trainable == "attention":
            for name, parameter in decoder.named_parameters():
                parameter.requires_grad_(any(part in name for part in ATTENTION))

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
    ) -> "LanguageModel":
        """From `tiny`, a Hugging Face-format folder, or a hub id."""
        folder = checkpoint.locate(str(name))
        decoder = Decoder(checkpoint.read_shape(folder), _dtype(dtype, torch.device(device)))
        checkpoint.read_weights(decoder, folder)
        model = cls(decoder, Tokenizer.load(folder), temperature, value_head, trainable, rows, seed)
        if model.value_head is not None and (folder / cls.head_file).is_file():
            model.value_head.load_state_dict(checkpoint.read_tensors(folder / cls.head_file))
        return model.to(device)

    @classmethod
    def build(
        cls, config: Model, value_head: bool = False, seed: int = 0, device: str | torch.device = "cpu"
    ) -> "LanguageModel":
        model = cls.load(
            config.model, config.temperature, value_head, config.trainable, config.dtype, config.rows, seed, device
        )
        if config.fresh:
            model.decoder.initialise(named_generator(seed, "initialise"))
        model.name, model.save_dtype = config.model, getattr(torch, config.save_dtype)
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
        **options: Any,
    ) -> "LanguageModel":
        """An untrained model; the default is the shape of `tiny`, 0.4 M parameters. options are those of `__init__`."""
        config = checkpoint.fresh_config(
            kind, len(tokenizer), width, layers, heads, kv_heads or heads, inner, context, tokenizer.eos_id
        )
        decoder = Decoder(Shape.read({**config, "tie_word_embeddings": tied})).initialise(
            named_generator(seed, "initialise")
        )
        return cls(decoder, tokenizer, seed=seed, **options)

    def save(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """A Hugging Face-format folder; the value head goes into a file of its own."""
        checkpoint.write(Path(folder), self.decoder, self.tokenizer, dtype or self.save_dtype)
        if self.value_head is not None:
            checkpoint.save(Path(folder) / self.head_file, self.value_head.state_dict())

    # Act

    def generate(
        self,
        prompts: Sequence[str],
        repeats: int = 1,
        max_tokens: int = 64,
        greedy: bool = False,
        forbid_first: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> TensorDict:
        """`repeats` completions of each prompt, [P, G]: observation action log_prob mask [P, G, T], truncated [P, G].

        With x = prompt + completion (the stop token included), observation = x[:-1], action = x[1:], and mask is True
        where the action belongs to the completion. forbid_first: strings whose first token may not be the first one.
        """
        ids = self._prompt_ids(prompts)
        longest, context = max(map(len, ids)), self.decoder.shape.context
        if longest + max_tokens > context:
            raise UserError(
                f"a prompt of {longest} tokens and {max_tokens} more exceed the model's context of {context}: "
                "lower max_tokens or shorten the prompt"
            )
        forbidden = tuple({row[0] for row in self.tokenizer.encode(list(forbid_first)) if row})
        rule = Rule(self.temperature, greedy, self.tokenizer.stop_ids, forbidden)
        done = generate(self.decoder, ids, repeats, max_tokens, rule, generator or self.generator, self.rows)
        out = _layout(ids, repeats, done.tokens, done.length, self.tokenizer.pad_id)
        log_prob = torch.zeros(out["mask"].shape, device=done.log_prob.device)
        log_prob[out["mask"]] = done.log_prob[_within(done.tokens, done.length)]
        size = (len(ids), repeats)
        out.update(log_prob=log_prob, truncated=done.truncated)
        return TensorDict({key: value.unflatten(0, size) for key, value in out.items()}, batch_size=size)

    def encode(self, prompts: Sequence[str], completions: Sequence[str]) -> TensorDict:
        """The layout of `generate`, [B], for texts that are given; the end token is appended."""
        written = [[*ids, self.tokenizer.eos_id] for ids in self.tokenizer.encode(list(completions))]
        ids = self._prompt_ids(prompts)
        longest, context = max(len(p) + len(c) for p, c in zip(ids, written, strict=True)), self.decoder.shape.context
        if longest > context:
            raise UserError(f"a text has {longest} tokens, the model's context is {context}: drop or shorten such rows")
        length = torch.tensor([len(row) for row in written])
        width = int(length.max())
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in written])
        out = _layout(ids, 1, tokens, length, self.tokenizer.pad_id)
        return TensorDict(out, batch_size=len(ids)).to(self.decoder.head.device)

    def decode(self, rollout: TensorDict) -> list[str]:
        """The completions as texts, row-major, without special tokens."""
        mask = rollout["mask"].flatten(0, -2).cpu()
        tokens = rollout["action"].flatten(0, -2).cpu()[mask].split(mask.sum(-1).tolist())
        return self.tokenizer.decode([row.tolist() for row in tokens])

    def _prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        ids = self.tokenizer.encode(list(prompts), special=True)
        if not ids or not all(ids):
            raise UserError("a prompt is empty: every prompt needs at least one token")
        return ids

    def check(self, prompts: Sequence[str], after: int | Sequence[str]) -> None:
        """Refuse prompts that are too long with `after` more tokens, or with their completions and an end token."""
        context = self.decoder.shape.context
        rest = [after] * len(prompts) if isinstance(after, int) else [len(text.encode()) + 1 for text in after]
        # A token is a byte at least, so few texts have to be encoded; 8 for what the tokenizer puts before a prompt.
        long = [i for i, prompt in enumerate(prompts) if len(prompt.encode()) + 8 + rest[i] > context]
        if not long:
            return
        sizes = [len(ids) for ids in self._prompt_ids([prompts[i] for i in long])]
        if isinstance(after, int):
            more, advice = [after] * len(long), "lower env.max_tokens, drop or shorten the prompt"
        else:
            more = [len(ids) + 1 for ids in self.tokenizer.encode([after[i] for i in long])]
            advice = "drop or shorten it"
        size, extra, at = max(zip(sizes, more, long, strict=True), key=lambda row: row[0] + row[1])
        if size + extra > context:
            start = " ".join(prompts[at].split())[:40]
            raise UserError(
                f"a prompt of {size} tokens ('{start} ...') and {extra} more exceed the model's context of {context}: "
                f"{advice}, or take a model with a longer context"
            )

    # Learn

    def evaluate(self, batch: TensorDict, entropy: bool = True) -> dict[str, Tensor]:
        """log π(action) and the policy's entropy (and the value) at each masked position, [B, T], zero elsewhere.

        entropy=False leaves the entropy out. Rows are read in chunks of similar length; memory for logits does not grow
        with B·T (see `token_log_probs`).
        """
        hidden, where = self._hidden(batch)
        targets = batch["action"].flatten()[where]
        log_prob, entropies = token_log_probs(hidden, self.decoder.head, targets, self.temperature, entropy=entropy)
        out = {"log_prob": log_prob, "entropy": entropies} if entropy else {"log_prob": log_prob}
        if self.value_head is not None:
            out["value"] = self.value_head(hidden.float())[:, 0]
        return {key: _scatter(value, where, batch["mask"].shape) for key, value in out.items()}

    @torch.no_grad()
    def record(self, rollout: TensorDict) -> dict[str, Tensor]:
        """value and next_value [..., T] with a value head: V after the next token, 0 after the last one."""
        if self.value_head is None:
            return {}
        rows = flatten_groups(rollout.select("observation", "mask"))
        value = in_parts(self._values, rows, self.micro_steps)["value"].view(rollout["mask"].shape)
        return {"value": value, "next_value": torch.cat((value[..., 1:], torch.zeros_like(value[..., :1])), -1)}

    def _values(self, batch: TensorDict) -> dict[str, Tensor]:
        assert self.value_head is not None
        hidden, where = self._hidden(batch)
        return {"value": _scatter(self.value_head(hidden.float())[:, 0], where, batch["mask"].shape)}

    def _hidden(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """Hidden states [N, d] of the masked positions of [B, T], and their indices in the flattened batch."""
        mask = batch["mask"]
        return self.decoder(batch["observation"])[mask], mask.flatten().nonzero()[:, 0]


def _scatter(values: Tensor, where: Tensor, shape: torch.Size) -> Tensor:
    return values.new_zeros(shape.numel()).index_put((where,), values).view(shape)


def _within(tokens: Tensor, length: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=length.device) < length[:, None]


def _layout(prompts: list[list[int]], repeats: int, tokens: Tensor, length: Tensor, pad: int) -> dict[str, Tensor]:
    """Right-padded observation, action and mask [R, T] of completions `tokens` [R, T'] with their `length` [R]."""
    sizes = torch.tensor([len(p) for p in prompts], device=tokens.device)
    width = int(sizes.max())
    padded = torch.tensor([[*p, *[pad] * (width - len(p))] for p in prompts], device=tokens.device)
    start = sizes.repeat_interleave(repeats)
    text = torch.full((len(tokens), width + tokens.shape[1]), pad, device=tokens.device)
    text[:, :width] = padded.repeat_interleave(repeats, 0)
    written = tokens.where(_within(tokens, length), pad)
    text.scatter_(1, start[:, None] + torch.arange(tokens.shape[1], device=tokens.device), written)
    text = text[:, : int((start + length).max())]
    column = torch.arange(1, text.shape[1], device=tokens.device)
    mask = (column >= start[:, None]) & (column < (start + length)[:, None])
    return {"observation": text[:, :-1].contiguous(), "action": text[:, 1:].contiguous(), "mask": mask}


def _dtype(name: Dtype, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]
