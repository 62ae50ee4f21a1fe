"""The peak memory of a language model in an iteration, computed from its shape.

Writing needs keys, values and the probabilities of the next token. Learning needs stored activations and gradients. The
moments of the optimizer stay in memory from the first step on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from rlkit.forecast import Footprint, Work
from rlkit.language.decoder import Decoder
from rlkit.language.generate import BLOCK
from rlkit.language.logprob import chunk_rows
from rlkit.language.packing import moved, pack

MOMENTS, GRADIENT = 8, 4  # bytes per trained parameter beside itself: two moments of Adam, and a gradient, in float32
DRAWN = 20  # bytes per vocabulary entry of the next token: logits, exponentials, and their float64 sum
PROBE = 32  # tokens that are read to measure the stored activations of a token


def footprint(
    decoder: Decoder, trained: int, rows: int, micro_steps: int | None, learned: Work, written: Sequence[Work]
) -> Footprint:
    """The peak with `trained` parameters that learn, `rows` texts written and `micro_steps` tokens learned at a time.

    An upper bound: completions may end early, and groups of equal scores may be skipped.
    """
    write = max((writing(decoder, rows, within(decoder.context, work)) for work in written), default=0)
    learn = learning(decoder, micro_steps, GRADIENT * trained, within(decoder.context, learned))
    size = twin(decoder) + MOMENTS * trained + max(write, learn)
    fewer = rows > max((work.group for work in written), default=0)  # a group is written whole
    less = "lower policy.rows" if fewer else "lower env.max_tokens, or algo.group"
    return Footprint(size, less if write > learn else remedy(decoder, trained, micro_steps))


def within(context: int, work: Work) -> Work:
    """The work, if replies in a row end at the context."""
    return replace(work, written=min(work.written, max(0, context - work.prompt)))


def remedy(decoder: Decoder, trained: int, micro_steps: int | None) -> str:
    """Advice that lowers the memory of learning."""
    ways = ["give a smaller policy.micro_steps" if micro_steps else "lower env.rows"]
    if not decoder.checkpointing:
        ways.insert(0, "set policy.gradient_checkpointing=true")
    if 2 * trained > sum(p.numel() for p in decoder.parameters()):
        ways.append("train adapters with policy.lora=16")
    return " or ".join(ways)


def twin(decoder: Decoder) -> int:
    """Bytes of weights that only the engine has: a copy in lower precision, or in higher precision while it writes."""
    parameters = list(decoder.parameters())
    same = all(p.dtype == decoder.dtype for p in parameters)
    return 0 if same else decoder.dtype.itemsize * sum(p.numel() for p in parameters)


def writing(decoder: Decoder, rows: int, work: Work) -> int:
    """Bytes for keys and values of about `rows` texts, next-token probabilities, and one layer of their prompts."""
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
    """Bytes in use during the backward pass of the largest micro-batch, with `gradient` bytes of gradients.

    seen: the result of `kept_by` for this decoder.
    """
    shape = decoder.shape
    batch = work.prompts * (work.prompt + work.group * work.written)
    tokens = max(min(batch, micro_steps or batch), work.prompt + work.written)
    kept, fixed = seen or kept_by(decoder)
    if decoder.checkpointing:  # the inputs of all blocks, and one block as it is recomputed
        kept = shape.width * shape.layers * decoder.dtype.itemsize + kept / shape.layers
        fixed /= shape.layers
    logits = 3 * 4 * shape.vocab * min(tokens, chunk_rows(decoder.head))
    head = GRADIENT * decoder.head.numel() if decoder.head.requires_grad else 0  # the new gradient before it is added
    alive = int(tokens * kept + fixed) + logits + head
    # In the first micro-batch, activations are freed as gradients appear; from the second on, gradients exist already.
    together = max(alive, gradient + logits) if tokens >= batch else alive + gradient
    return together + holes(decoder, tokens)


def holes(decoder: Decoder, tokens: int) -> int:
    """On a CPU, freed memory between blocks that stay in use: about two of the widest tensors in each layer."""
    on_cpu = decoder.head.device.type == "cpu"
    return 2 * decoder.dtype.itemsize * decoder.shape.layers * decoder.shape.inner * tokens if on_cpu else 0


def kept_by(decoder: Decoder) -> tuple[float, float]:
    """Bytes stored for the backward pass without recomputation: for each token, and once for all tokens.

    Stored once are weights cast to the precision of the products. Measured with a few tokens and with twice as many.
    """
    few, more = kept_of(decoder, PROBE), kept_of(decoder, 2 * PROBE)
    each = (more - few) / PROBE
    return each, few - PROBE * each


def kept_of(decoder: Decoder, tokens: int) -> int:
    """Bytes that a text of so many tokens stores for the backward pass."""
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
    """The bytes of each storage kept for the backward pass, by torch's id of the storage; parameters do not count.

    Addresses would not do: on the device meta, where only sizes are computed, all storages have the same address.
    """
    own = {p.untyped_storage()._cdata for p in module.parameters()}
    found: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in own:
            found[storage._cdata] = storage.nbytes()
        return x.detach()  # x itself may be what its own node made: such a circle is never freed, and holds the model

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        yield found
