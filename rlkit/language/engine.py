"""Engines write text. Their inputs and outputs are token ids, and `sync` gives them new weights."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch

from rlkit.attributes import Derived
from rlkit.language.causal import Causal
from rlkit.language.decoder import Decoder
from rlkit.language.generate import Completions, Prompts, generate
from rlkit.language.turns import Spans, Talk, converse
from rlkit.ranks import divide
from rlkit.shards import is_shard


class Engine(Protocol):
    """Writes text with the weights of the last `sync`."""

    note: str  # for the first screen: the engine, and what is inexact; empty for rlkit's own
    exact: bool  # whether its log-probabilities equal the learner's up to float32 rounding

    def sync(self, decoder: Causal) -> None:
        """Take over the weights of the network that is being trained."""
        ...

    def write(self, prompts: Prompts, max_tokens: int) -> Completions:
        """Completions of at most `max_tokens` tokens."""
        ...

    def converse(self, prompts: Prompts, talk: Talk) -> Spans:
        """Conversations, see `rlkit.language.turns.converse`."""
        ...


@runtime_checkable
class WritesMeanwhile(Engine, Protocol):
    """An engine that can write while the learner computes: it needs neither its time nor its weights after `begin`."""

    iterations: int  # number of iterations that began: in each, the learner's weights are others than before

    def begin(self, prompts: Prompts, max_tokens: int) -> Callable[[], Completions]:
        """Begin the work of `write`; calling the result waits for it, and so does the next `sync`."""
        ...


class Native(Derived):
    """The project's own generation, `rlkit.language.generate`.

    In float32 it writes with the learner's own weights; weights stored in bfloat16 are widened while it writes, and
    adapters are merged. In another precision it keeps a copy of the weights with adapters merged. The copy is made
    once and refreshed in place, so that no step casts a weight and a recorded graph stays valid. If the network is
    sharded, the copy is gathered weight by weight, and is the only complete one.
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
        if sharded and not divide():  # inside a rank's own part: all ranks synchronized before
            return
        if self.decoder is None or self.decoder.head.device != decoder.head.device:
            self.decoder = _empty(decoder)
        mine = dict(self.decoder.named_parameters())
        with torch.no_grad():
            for name, newest in decoder.weights():
                mine[name].copy_(newest)

    def write(self, prompts: Prompts, max_tokens: int) -> Completions:
        assert self.decoder is not None, "sync before write"
        return generate(_whole(self.decoder), prompts, max_tokens)

    def converse(self, prompts: Prompts, talk: Talk) -> Spans:
        assert self.decoder is not None, "sync before converse"
        return converse(_whole(self.decoder), prompts, talk)

    def __deepcopy__(self, memo: dict[int, object]) -> "Native":
        """A copy of a policy gets an engine of its own, which gets its own weights when it first writes."""
        return Native()


def _empty(decoder: Decoder) -> Decoder:
    """A decoder of the same shape with uninitialized weights, all in the precision of its computations."""
    with torch.inference_mode(False):  # what is made in inference mode could only be refreshed there
        with torch.device("meta"):
            twin = Decoder(decoder.shape, decoder.dtype)
        twin = twin.to(decoder.dtype).to_empty(device=decoder.head.device).requires_grad_(False)
    twin.frequencies = decoder.frequencies  # stays float32: the angles of far positions are large
    return twin


def _whole(decoder: Decoder) -> Decoder:
    """The decoder itself; where its weights are stored in bfloat16, an equivalent one with float32 weights."""
    kept = all(p.dtype == decoder.dtype for p in decoder.parameters())
    if decoder.dtype != torch.float32 or kept:
        return decoder
    with torch.device("meta"):
        twin = Decoder(decoder.shape, decoder.dtype)
    with torch.no_grad():
        twin.load_state_dict({name: x.detach().float() for name, x in decoder.weights()}, assign=True)
    twin.frequencies = decoder.frequencies
    return twin.requires_grad_(False)
