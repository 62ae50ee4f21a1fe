"""The interface between a language model and its network from tokens to hidden states, native or foreign."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rlkit.language.files import Json
from rlkit.language.linear import Linear

ATTENTION = {"self_attn", "attn", "self_attention", "attention"}  # names of the attention module


class Causal(nn.Module, ABC):
    """A causal network: the hidden state of a token depends on the tokens before it and on itself."""

    dtype: torch.dtype  # precision of computations
    vocab: int  # V
    width: int  # d
    context: int  # most tokens of a row

    @property
    @abstractmethod
    def head(self) -> Tensor:
        """The weight of the language-model head, [V, d]."""

    @property
    @abstractmethod
    def config(self) -> Json:
        """The content of `config.json` for this network."""

    @abstractmethod
    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Each weight once, under its Hugging Face name."""

    @abstractmethod
    def initialize(self, generator: torch.Generator) -> "Causal":
        """Replace the weights by random ones."""

    @abstractmethod
    def recompute(self, on: bool) -> None:
        """Gradient checkpointing on or off: in training, store only the inputs of blocks and recompute the rest."""

    @abstractmethod
    def read(self, text: Tensor, mask: Tensor, stop: Tensor, wanted: Tensor, steps: int | None) -> Tensor:
        """Hidden states [N, d] of the wanted tokens [B, T], in rows [B, T] that end after `stop` [B] tokens.

        mask: [B, T], True where the policy acted.
        steps: most tokens in memory at once, with activations; a beginning that rows share is counted once.
        """

    @abstractmethod
    def log_probs(self, hidden: Tensor, targets: Tensor, temperature: float, entropy: bool) -> tuple[Tensor, Tensor]:
        """log π of the targets [N] and the entropy [N], from hidden states [N, d]; see `token_log_probs`."""

    def in_attention(self, name: str) -> bool:
        """Whether a parameter belongs to the q, k, v or o projections of attention."""
        *modules, _ = name.split(".")
        return not ATTENTION.isdisjoint(modules) and "norm" not in modules[-1].lower()

    def adapted(self) -> Iterator[tuple[str, Linear]]:
        """The layers that have an adapter, with their names."""
        return iter(())
