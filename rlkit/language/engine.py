"""Engines write text. They take and give token ids, and are given new weights by `sync`."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch

from rlkit.attributes import Derived
from rlkit.language.causal import Causal
from rlkit.language.decoder import Decoder
from rlkit.language.generate import Completions, Rule, generate
from rlkit.language.turns import Spans, Talk, converse
from rlkit.ranks import divide
from rlkit.shards import is_shard


class Engine(Protocol):
    """Writes with the weights of the last `sync`."""

    note: str  # for the first screen of a run: who writes, and what is not exact then; empty of rlkit's own
    exact: bool  # what it says of a token's probability is what the learner computes, up to float32's rounding

    def sync(self, decoder: Causal) -> None:
        """Take the weights of the network that learns."""
        ...

    def write(
        self,
        ids: Sequence[Sequence[int]],
        repeats: int,
        max_tokens: int,
        rule: Rule,
        generator: torch.Generator | None = None,
        rows: int = 256,
    ) -> Completions:
        """`repeats` completions of each prompt, prompt-major, at most about `rows` at the same time.

        What is drawn is a pure function of the arguments and of the generator's state.
        """
        ...

    def converse(
        self,
        ids: Sequence[Sequence[int]],
        repeats: int,
        rule: Rule,
        talk: Talk,
        generator: torch.Generator | None = None,
        rows: int = 256,
    ) -> Spans:
        """`repeats` conversations after each prompt, see `rlkit.language.turns.converse`."""
        ...


@runtime_checkable
class WritesMeanwhile(Engine, Protocol):
    """An engine that needs none of the learner's time, nor its weights, once it has begun."""

    def begin(
        self,
        ids: Sequence[Sequence[int]],
        repeats: int,
        max_tokens: int,
        rule: Rule,
        generator: torch.Generator | None = None,
        rows: int = 256,
    ) -> Callable[[], Completions]:
        """Begin what `write` does; what is returned waits for it. The next `sync` waits, too."""
        ...


class Native(Derived):
    """The project's own generation, `rlkit.language.generate`.

    In float32 it writes with the learner's own weights; those that are kept in bfloat16 are widened, adapters merged,
    for as long as it writes. In another precision it keeps a copy of the weights in that precision, adapters merged,
    made once and refreshed in place, so that no step casts a weight and a recorded graph stays valid. Where ranks hold
    parts of the network, that copy is gathered weight by weight, and is the only whole one.
    """

    note, exact = "", True

    def __init__(self) -> None:
        self.decoder: Decoder | None = None

    def sync(self, decoder: Causal) -> None:
        if not isinstance(decoder, Decoder):
            raise TypeError(f"this engine writes with a Decoder and was given a {type(decoder).__name__}")
        self.exact = decoder.dtype in (torch.float32, torch.float64)
        sharded = is_shard(decoder.head)
        if self.exact and not sharded:
            self.decoder = decoder
            return
        if sharded and not divide():  # a rank at its own part: it was done before, by all
            return
        if self.decoder is None or self.decoder.head.device != decoder.head.device:
            self.decoder = _empty(decoder)
        mine = dict(self.decoder.named_parameters())
        with torch.no_grad():
            for name, newest in decoder.weights():
                mine[name].copy_(newest)

    def write(
        self,
        ids: Sequence[Sequence[int]],
        repeats: int,
        max_tokens: int,
        rule: Rule,
        generator: torch.Generator | None = None,
        rows: int = 256,
    ) -> Completions:
        assert self.decoder is not None, "sync before write"
        return generate(_whole(self.decoder), ids, repeats, max_tokens, rule, generator, rows)

    def converse(
        self,
        ids: Sequence[Sequence[int]],
        repeats: int,
        rule: Rule,
        talk: Talk,
        generator: torch.Generator | None = None,
        rows: int = 256,
    ) -> Spans:
        assert self.decoder is not None, "sync before converse"
        return converse(_whole(self.decoder), ids, repeats, rule, talk, generator, rows)

    def __deepcopy__(self, memo: dict[int, object]) -> "Native":
        """A copy of a policy gets an engine of its own, with weights of its own once it writes."""
        return Native()


def _empty(decoder: Decoder) -> Decoder:
    """A decoder of the same shape whose weights are not yet set, all of them in the precision that it computes in."""
    with torch.device("meta"):
        twin = Decoder(decoder.shape, decoder.dtype)
    twin = twin.to(decoder.dtype).to_empty(device=decoder.head.device).requires_grad_(False)
    twin.frequencies = decoder.frequencies  # stays float32: far positions have large angles
    return twin


def _whole(decoder: Decoder) -> Decoder:
    """The decoder itself, or, where its weights are kept in bfloat16, one that writes the same with float32 weights."""
    kept = all(p.dtype == decoder.dtype for p in decoder.parameters())
    if decoder.dtype != torch.float32 or kept:
        return decoder
    with torch.device("meta"):
        twin = Decoder(decoder.shape, decoder.dtype)
    with torch.no_grad():
        twin.load_state_dict({name: x.detach().float() for name, x in decoder.weights()}, assign=True)
    twin.frequencies = decoder.frequencies
    return twin.requires_grad_(False)
