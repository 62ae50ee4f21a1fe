"""Seconds of the phases of a step, as pure functions of numbers."""

from dataclasses import dataclass

from rlkit.planning.coefficients import USUAL, Coefficients
from rlkit.planning.hardware import Gpu
from rlkit.planning.models import Sizes

FORWARD, BACKWARD = 1, 2  # passes over all weights; a backward pass computes gradients of inputs, then of weights


@dataclass(frozen=True)
class Texts:
    """The texts of a step; token numbers are means, except `longest`."""

    prompts: int
    group: int  # texts per prompt
    prompt: float  # tokens
    answer: float
    longest: float  # tokens of the longest answer

    @property
    def count(self) -> int:
        return self.prompts * self.group

    @property
    def read(self) -> float:
        """Tokens that are learned from: a group's prompt counts once."""
        return self.prompts * (self.prompt + self.group * self.answer)

    @property
    def length(self) -> float:
        """Tokens of a whole text."""
        return self.prompt + self.answer


@dataclass(frozen=True)
class Writing:
    """Seconds of generation."""

    prompts: float  # reading the prompts
    full: float  # until a text of mean length ends
    waiting: float  # from then until the longest text ends: the bubble

    @property
    def total(self) -> float:
        return self.prompts + self.full + self.waiting


def operations(sizes: Sizes, tokens: float, length: float, passes: float) -> float:
    """Floating-point operations of `passes` passes over `tokens` tokens, in causal texts of `length` tokens each.

    A product with a weight takes 2 per token. Attention scores and sums of a token that sees t others take 4·t for each
    number of its heads; t is half of the length on average (Kaplan et al., arXiv:2001.08361). Recomputation is a pass.
    """
    return passes * tokens * (2 * sizes.multiplied + 2 * sizes.attended * length * sizes.layers)


def passes(lora: bool, recomputed: bool) -> int:
    """Passes of learning: frozen weights have no gradient, and checkpointing repeats each forward pass."""
    return FORWARD + (BACKWARD - lora) + recomputed


def computing(
    gpu: Gpu, gpus: int, sizes: Sizes, tokens: float, length: float, times: float, known: Coefficients = USUAL
) -> float:
    """Seconds of so many passes, with the texts spread over all GPUs."""
    return operations(sizes, tokens, length, times) / (gpus * gpu.peak * known.use)


def writing(
    gpu: Gpu, engines: float, tensor: int, sizes: Sizes, texts: Texts, most: float, known: Coefficients = USUAL
) -> Writing:
    """Seconds of generation by so many engines, each on `tensor` GPUs and with at most `most` texts at a time.

    A step reads all weights once, and the keys and values of each text. Waiting texts replace those that end. When no
    texts wait any more, steps become shorter with each text that ends, but all weights are read until the longest ends.
    """
    rows = texts.count / engines
    fixed, each = step_of(gpu, tensor, sizes, texts.prompt + texts.answer / 2, known)
    turns = texts.answer * max(1.0, rows / most)
    prefill = operations(sizes, texts.prompts * texts.prompt, texts.prompt, FORWARD)
    return Writing(
        prompts=prefill / (engines * tensor * gpu.peak * known.use),
        full=fixed * turns + each * rows * texts.answer,
        waiting=fixed * max(0.0, texts.longest - texts.answer),
    )


def step_of(gpu: Gpu, tensor: int, sizes: Sizes, context: float, known: Coefficients = USUAL) -> tuple[float, float]:
    """Seconds of a step of writing: a fixed part, and a part for each text of so many tokens of context."""
    stream = tensor * gpu.bandwidth * known.stream
    fixed = 2 * sizes.multiplied / stream + known.layer * sizes.layers
    multiplied = 2 * sizes.multiplied / (tensor * gpu.peak * known.use)
    return fixed, context * sizes.stored / stream + multiplied


def transfer(sizes: Sizes, known: Coefficients = USUAL) -> float:
    """Seconds to give the engines new weights, in bfloat16."""
    return known.handover + 2 * sizes.total / known.carried


def saving(saved: float, known: Coefficients = USUAL) -> float:
    """Seconds to write a checkpoint of so many bytes."""
    return saved / known.disk


def between(
    gpu: Gpu, gpus: int, machine: int, trained: int, total: int, gathers: float, known: Coefficients = USUAL
) -> float:
    """Seconds that gradients and shards travel between GPUs, with `machine` GPUs per machine; 0 for one GPU.

    trained: parameters with float32 gradients: they go around the ring twice without shards (all-reduce), once with
    shards (reduce-scatter). gathers: number of times that all `total` parameters are gathered, in bfloat16.
    """
    if gpus == 1:
        return 0.0
    speed = known.links * (gpu.link if gpus <= machine else gpu.network)
    around = (gpus - 1) / gpus
    rounds = 1 if gathers else 2
    return around * (4.0 * trained * rounds + 2.0 * total * gathers) / speed


def casting(gpu: Gpu, stored: float, sizes: Sizes, known: Coefficients = USUAL) -> float:
    """Seconds to copy weights to an engine on the same GPU: stored weights are read, and bfloat16 is written."""
    return (stored + 2 * sizes.total) / (gpu.bandwidth * known.stream)
