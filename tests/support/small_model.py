"""A small untrained language model and its tokenizer, for the tests of text."""

import torch

from rlkit.language.model import LanguageModel
from rlkit.language.tokenizer import train_tokenizer

TEXTS = ["Ann has 12 apples and 3 pears.", "Bob sells 7 apples.", "How many apples are left?\n#### 5"] * 3
TOKENIZER = train_tokenizer(TEXTS, 300)
PROMPTS = ["Ann has 12 apples", "Bob", "How many pears are left?"]
LONG = [*PROMPTS, "Ann has 12 apples and Bob sells 7 pears. " * 2]
ANSWERS = [" 5", " sells 12 apples", " #### 7", " 3 pears"]


def model(spread: float = 6.0, **options) -> LanguageModel:
    """Small, random, with distributions far from uniform."""
    out = LanguageModel.fresh(TOKENIZER, width=32, layers=2, heads=2, inner=48, context=128, **options)
    with torch.no_grad():
        for parameter in out.decoder.parameters():
            if parameter.dim() == 2:
                parameter *= spread
    return out
