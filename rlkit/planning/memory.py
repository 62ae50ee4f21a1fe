"""Bytes of memory that a step needs on each GPU, computed from the shape alone by `rlkit/language/footprint.py`."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from rlkit.forecast import Work
from rlkit.language import adapters, footprint
from rlkit.language.adapters import Lora
from rlkit.language.decoder import Decoder
from rlkit.language.shape import Shape
from rlkit.planning.hardware import Gpu
from rlkit.planning.models import Sizes, sizes
from rlkit.planning.seconds import Texts
from rlkit.planning.setting import Setting

ROOM = 0.9  # usable share of a GPU's memory; CUDA, NCCL and fragmentation take the rest
BESIDE = 0.6  # an engine's share of that on a GPU that also learns: the value that NeMo-RL and verl give vLLM
BFLOAT16, FLOAT32 = 2, 4  # bytes


def decoder(shape: Shape, rank: int = 0, base: torch.dtype = torch.bfloat16) -> Decoder:
    """The model as it would be on a GPU, with sizes but without memory. base: precision of weights beside adapters."""
    with torch.device("meta"):
        made = Decoder(shape, torch.bfloat16)
        if rank:
            made.to(base)
            adapters.attach(made, Lora(rank, 2.0 * rank, adapters.ALL), torch.Generator())
    return made


def kept(shape: Shape, rank: int = 0, base: torch.dtype = torch.bfloat16) -> tuple[float, float]:
    """The result of `footprint.kept_by` for the decoder, extrapolated from one and two layers: layers are alike."""
    one, two = (footprint.kept_by(decoder(replace(shape, layers=layers), rank, base)) for layers in (1, 2))
    each, shared = (a + (shape.layers - 1) * (b - a) for a, b in zip(one, two, strict=True))
    return each, shared


class Model:
    """The model of a plan, with cached measurements of its shape."""

    def __init__(self, name: str, shape: Shape, rank: int) -> None:
        self.name, self.shape, self.sizes, self.rank = name, shape, sizes(shape), rank
        self.decoder = decoder(shape, rank)
        self.stored = sum(p.numel() * p.dtype.itemsize for p in self.decoder.parameters())  # bytes
        self.trained = sum(p.numel() for p in self.decoder.parameters() if p.requires_grad)

    @cached_property
    def kept(self) -> tuple[float, float]:
        return kept(self.shape, self.rank)

    def learning(self, setting: Setting, sharded: bool) -> int:
        """Activations and logits of the largest micro-batch of a GPU.

        bfloat16 weights are kept for the backward pass only where a GPU has all of them: shards are gathered again.
        """
        texts = setting.texts
        work = Work(texts.prompts // setting.learners, texts.group, round(texts.prompt), round(texts.longest))
        self.decoder.recompute(setting.gradient_checkpointing)
        each, shared = self.kept
        seen = (each, 0.0 if sharded else shared)
        return footprint.learning(self.decoder, setting.micro_steps, 0, work, seen)


@dataclass(frozen=True)
class Memory:
    """Bytes on a GPU that learns; they include the engine's, unless other GPUs write."""

    parameters: float
    gradients: float
    moments: float
    reference: float  # weights of a KL penalty's reference, but those that it shares
    gathered: float  # layers that are gathered temporarily
    engine: float  # weights of the engine
    cache: float  # keys, values, and next-token probabilities
    activations: float  # including logits

    @property
    def peak(self) -> float:
        """The peak, as writing and learning take turns."""
        stays = self.parameters + self.moments + self.reference + self.engine
        return stays + max(self.cache, self.gradients + self.gathered + self.activations)


def of_learner(setting: Setting, model: Model, sharded: bool) -> Memory:
    """The memory of a GPU that learns; with adapters, only these have gradients and moments, and no reference."""
    shards = setting.learners if sharded else 1
    alone = setting.engine_gpus > 0
    engine = 0.0 if alone else BFLOAT16 * model.sizes.total / setting.tensor
    return Memory(
        parameters=model.stored / shards,
        gradients=footprint.GRADIENT * model.trained / shards,
        moments=footprint.MOMENTS * model.trained / shards,
        reference=0.0 if model.rank or not setting.kl else model.stored / shards,
        gathered=2.0 * BFLOAT16 * model.sizes.layer if shards > 1 else 0.0,  # one is used while the next is gathered
        engine=engine,
        cache=0.0 if alone else cache(setting, model),
        activations=model.learning(setting, sharded),
    )


def cache(setting: Setting, model: Model) -> float:
    """Keys and values: of all rows at full length for the native engine; of one text for vLLM, which pages them."""
    texts = setting.texts
    if setting.engine == "native":
        work = Work(texts.prompts // setting.learners, texts.group, round(texts.prompt), round(texts.longest))
        return footprint.writing(model.decoder, setting.rows, work)
    return model.sizes.stored * (texts.prompt + texts.longest) / setting.tensor


def most_rows(gpu: Gpu, tensor: int, sizes: Sizes, texts: Texts, share: float = BESIDE) -> float:
    """The number of texts whose keys and values fit beside the weights of an engine with such a share of its GPUs."""
    room = share * gpu.memory * tensor - BFLOAT16 * sizes.total
    return max(1.0, room / (sizes.stored * texts.length))
