"""What a language model needs of the network that turns tokens into hidden states, native or foreign."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rlkit.language.files import Json
from rlkit.language.linear import Linear

ATTENTION = {"self_attn", "attn", "self_attention", "attention"}  # what architectures call the module


class Causal(nn.Module, ABC):
    """A causal network: the hidden state of a token depends on the tokens before it and on itself."""

    dtype: torch.dtype  # of computations
    vocab: int  # V
    width: int  # d
    context: int  # tokens of the longest row

    @property
    @abstractmethod
    def head(self) -> Tensor:
        """The weight of the language-model head, [V, d]."""

    @property
    @abstractmethod
    def config(self) -> Json:
        """The `config.json` that describes it."""

    @abstractmethod
    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face's names and what each weight is; none of them twice."""

    @abstractmethod
    def initialize(self, generator: torch.Generator) -> "Causal":
        """Random weights in place of those that it has."""

    @abstractmethod
    def recompute(self, on: bool) -> None:
        """In training, keep what goes into each block and compute the rest again; or not."""

    @abstractmethod
    def read(self, text: Tensor, mask: Tensor, stop: Tensor, wanted: Tensor, steps: int | None) -> Tensor:
        """Hidden states [N, d] of the wanted [B, T] tokens of rows [B, T] that end after `stop` [B] tokens.

        mask: [B, T], True where the policy acted.
        steps: tokens whose activations may be alive at once; the caller has counted what rows begin with alike once.
        """

    @abstractmethod
    def log_probs(self, hidden: Tensor, targets: Tensor, temperature: float, entropy: bool) -> tuple[Tensor, Tensor]:
        """log π of the targets [N] and the entropy [N] from hidden states [N, d]; see `token_log_probs`."""

    def in_attention(self, name: str) -> bool:
        """Whether a parameter is of the products before and after attention: the q, k, v and o projections."""
        *modules, _ = name.split(".")
        return not ATTENTION.isdisjoint(modules) and "norm" not in modules[-1]

    def adapted(self) -> Iterator[tuple[str, Linear]]:
        """The products that have an adapter, by name."""
        return iter(())
