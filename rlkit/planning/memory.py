"""Bytes of memory that a step takes on each GPU, counted by `rlkit/language/footprint.py` from the shape alone."""

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

ROOM = 0.9  # of a GPU's memory that may be taken: the rest is CUDA's, NCCL's, and holes between what is freed
BESIDE = 0.6  # of it that an engine may have on a GPU that learns, too: what NeMo-RL and verl give vLLM
BFLOAT16 = 2  # bytes


def decoder(shape: Shape, rank: int = 0, base: torch.dtype = torch.bfloat16) -> Decoder:
    """The model as it would be on a GPU, with sizes and no memory. base: of weights beside adapters."""
    with torch.device("meta"):
        made = Decoder(shape, torch.bfloat16)
        if rank:
            made.to(base)
            adapters.attach(made, Lora(rank, 2.0 * rank, adapters.ALL), torch.Generator())
    return made


def kept(shape: Shape, rank: int = 0, base: torch.dtype = torch.bfloat16) -> tuple[float, float]:
    """What `footprint.kept_by` says of the decoder: layers are alike, so one and two of them tell of all."""
    one, two = (footprint.kept_by(decoder(replace(shape, layers=layers), rank, base)) for layers in (1, 2))
    each, shared = (a + (shape.layers - 1) * (b - a) for a, b in zip(one, two, strict=True))
    return each, shared


class Model:
    """A model that is planned with, and what was seen of it."""

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

        Weights in bfloat16 are kept for the backward pass only where a GPU has all: shards are gathered again for it.
        """
        texts = setting.texts
        work = Work(texts.prompts // setting.learners, texts.group, round(texts.prompt), round(texts.longest))
        self.decoder.recompute(setting.gradient_checkpointing)
        each, shared = self.kept
        seen = (each, 0.0 if sharded else shared)
        return footprint.learning(self.decoder, setting.micro_steps, 0, work, seen)


@dataclass(frozen=True)
class Memory:
    """Bytes on a GPU that learns; the engine's are on the same one unless other GPUs write."""

    parameters: float
    gradients: float
    moments: float
    gathered: float  # layers of which a GPU has the whole for a moment
    engine: float  # its weights
    cache: float  # keys and values, and what is written next
    activations: float  # and logits

    @property
    def peak(self) -> float:
        """Writing and learning take turns."""
        stays = self.parameters + self.moments + self.engine
        return stays + max(self.cache, self.gradients + self.gathered + self.activations)


def of_learner(setting: Setting, model: Model, sharded: bool) -> Memory:
    """What a GPU that learns holds; with adapters nothing but they has gradients and moments."""
    shards = setting.learners if sharded else 1
    alone = setting.engine_gpus > 0
    engine = 0.0 if alone else BFLOAT16 * model.sizes.total / setting.tensor
    return Memory(
        parameters=model.stored / shards,
        gradients=footprint.GRADIENT * model.trained / shards,
        moments=footprint.MOMENTS * model.trained / shards,
        gathered=2.0 * BFLOAT16 * model.sizes.layer if shards > 1 else 0.0,  # one computes while the next comes
        engine=engine,
        cache=0.0 if alone else cache(setting, model),
        activations=model.learning(setting, sharded),
    )


def cache(setting: Setting, model: Model) -> float:
    """Keys and values: the native engine's of all rows at their longest; vLLM's of one text at least, as it pages."""
    texts = setting.texts
    if setting.engine == "native":
        work = Work(texts.prompts // setting.learners, texts.group, round(texts.prompt), round(texts.longest))
        return footprint.writing(model.decoder, setting.rows, work)
    return model.sizes.stored * (texts.prompt + texts.longest) / setting.tensor


def most_rows(gpu: Gpu, tensor: int, sizes: Sizes, texts: Texts, share: float = BESIDE) -> float:
    """Texts whose keys and values fit beside the weights of an engine that may have such a share of its GPUs."""
    room = share * gpu.memory * tensor - BFLOAT16 * sizes.total
    return max(1.0, room / (sizes.stored * texts.length))
