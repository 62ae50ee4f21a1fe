"""How much memory a language model takes at the peak of an iteration, counted from its shape.

Completions are written: keys and values, probabilities of the next token. Then rows are learned from: what the backward
pass reads again, gradients. The optimizer's moments stay from the first step on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rlkit.forecast import Footprint, Work
from rlkit.language.decoder import Decoder
from rlkit.language.generate import BLOCK
from rlkit.language.logprob import chunk_rows
from rlkit.language.packing import moved, pack

MOMENTS, GRADIENT = 8, 4  # bytes of a trained parameter beside itself: two moments of Adam, and a gradient, in float32
DRAWN = 20  # bytes of a token that could come next: logits, their exponentials, and their sum in float64
PROBE = 32  # tokens that are read to see what a token leaves for the backward pass


def footprint(
    decoder: Decoder, trained: int, rows: int, micro_steps: int | None, learned: Work, written: Sequence[Work]
) -> Footprint:
    """At the peak, with so many trained parameters; `rows` texts are written, `micro_steps` tokens learned at a time.

    An upper bound where completions end early, or where groups of equal scores are not learned from.
    """
    write = max((writing(decoder, rows, work) for work in written), default=0)
    learn = learning(decoder, micro_steps, GRADIENT * trained, learned)
    size = twin(decoder) + MOMENTS * trained + max(write, learn)
    fewer = rows > max((work.group for work in written), default=0)  # a group is written whole
    less = "lower policy.rows" if fewer else "lower env.max_tokens, or algo.group"
    return Footprint(size, less if write > learn else remedy(decoder, trained))


def remedy(decoder: Decoder, trained: int) -> str:
    """What makes learning smaller."""
    ways = ["give a smaller policy.micro_steps"]
    if not decoder.checkpointing:
        ways.insert(0, "set policy.gradient_checkpointing=true")
    if 2 * trained > sum(p.numel() for p in decoder.parameters()):
        ways.append("train adapters with policy.lora=16")
    return " or ".join(ways)


def twin(decoder: Decoder) -> int:
    """Weights that only the engine has: those of a lower precision, or, while it writes, of a higher one."""
    parameters = list(decoder.parameters())
    same = all(p.dtype == decoder.dtype for p in parameters)
    return 0 if same else decoder.dtype.itemsize * sum(p.numel() for p in parameters)


def writing(decoder: Decoder, rows: int, work: Work) -> int:
    """Keys and values of about `rows` texts, the probabilities of their next token, and one layer of their prompts."""
    shape, width = decoder.shape, decoder.dtype.itemsize
    prompts, group = min(work.prompts, max(1, rows // work.group)), work.group
    block = BLOCK.get(decoder.head.device.type, 32)
    columns = -(-work.written // block) * block
    stored = 2 * shape.layers * shape.kv_heads * shape.head_dim * width
    read = 3 * shape.inner * width * prompts * work.prompt
    return stored * prompts * (work.prompt + group * columns) + DRAWN * shape.vocab * prompts * group + read


def learning(
    decoder: Decoder, micro_steps: int | None, gradient: int, work: Work, seen: tuple[float, float] | None = None
) -> int:
    """What is alive in the backward pass of the largest micro-batch, with a gradient of so many bytes.

    seen: what `kept_by` said of the decoder before.
    """
    shape = decoder.shape
    batch = work.prompts * (work.prompt + work.group * work.written)
    tokens = max(min(batch, micro_steps or batch), work.prompt + work.written)
    kept, fixed = seen or kept_by(decoder)
    if decoder.checkpointing:  # what goes into each block, and one block as it is computed again
        kept = shape.width * shape.layers * decoder.dtype.itemsize + kept / shape.layers
        fixed /= shape.layers
    logits = 3 * 4 * shape.vocab * min(tokens, chunk_rows(decoder.head))
    head = GRADIENT * decoder.head.numel() if decoder.head.requires_grad else 0  # as it is before it is added
    alive = int(tokens * kept + fixed) + logits + head
    # What is kept goes while the gradient of the first micro-batch comes; from the second one on it is there before.
    together = max(alive, gradient + logits) if tokens >= batch else alive + gradient
    return together + holes(decoder, tokens)


def holes(decoder: Decoder, tokens: int) -> int:
    """On a CPU, freed memory between blocks that live on: about two of the widest tensors in each layer."""
    on_cpu = decoder.head.device.type == "cpu"
    return 2 * decoder.dtype.itemsize * decoder.shape.layers * decoder.shape.inner * tokens if on_cpu else 0


def kept_by(decoder: Decoder) -> tuple[float, float]:
    """Bytes that each token leaves for the backward pass when nothing is computed again, and those that all share.

    Shared are weights that are cast to the precision of the products. Seen by reading a few tokens, and twice as many.
    """
    few, more = kept_of(decoder, PROBE), kept_of(decoder, 2 * PROBE)
    each = (more - few) / PROBE
    return each, few - PROBE * each


def kept_of(decoder: Decoder, tokens: int) -> int:
    """Bytes that a text of so many tokens leaves for the backward pass."""
    text, start = torch.zeros(1, tokens, dtype=torch.long), torch.ones(1, dtype=torch.long)
    packing = moved(pack(text, start, start * tokens, torch.zeros_like(start)), decoder.head.device)
    was, decoder.checkpointing = decoder.checkpointing, False
    try:
        with torch.enable_grad(), saved_bytes(decoder) as found:
            decoder(packing.tokens, packing.positions, packing)
    finally:
        decoder.checkpointing = was
    return sum(found.values())


@contextmanager
def saved_bytes(module: nn.Module) -> Iterator[dict[int, int]]:
    """The bytes of each storage that is kept for the backward pass, by what torch knows it by; parameters do not count.

    Not by its address: on the device meta, where only sizes are computed, all have the same.
    """
    own = {p.untyped_storage()._cdata for p in module.parameters()}
    found: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in own:
            found[storage._cdata] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        yield found
