"""A small language model with adapters."""

from typing import Any

import torch
from torch import Tensor

from rlkit.language import adapters
from rlkit.language.adapters import ALL, Lora
from rlkit.language.model import LanguageModel
from rlkit.seeding import generator
from support.small_model import model

PLAIN_LORA = Lora(4, 8.0, ALL)


def adapted(lora: Lora = PLAIN_LORA, moved: bool = True, **options: Any) -> LanguageModel:
    """A small model with adapters, which add something where they were moved."""
    policy = model(**options)
    policy.lora = lora
    adapters.attach(policy.decoder, lora, generator(3, "adapters"))
    if moved:
        move(policy)
    return policy


def move(policy: LanguageModel) -> None:
    for _, linear in policy.decoder.adapted():
        assert linear.adapter is not None
        torch.nn.init.normal_(linear.adapter.up, std=0.5, generator=generator(4, "moved"))


def logits(policy: LanguageModel, tokens: Tensor) -> Tensor:
    return policy.decoder.logits(policy.decoder(tokens)).detach()


TOKENS = torch.arange(24).view(2, 12)
