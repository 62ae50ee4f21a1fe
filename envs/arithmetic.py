"""Sums, differences and small products of two numbers, for a pretrained model to answer in a given format."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rlkit.api import Count
from rlkit.fields import Problems, Words
from rlkit.text import Problem, TextEnv
from rlkit.text.problems import MARKER

from ._text import TextConfig, text_env

TRAIN, TEST = 1200, 200  # different questions; validation is the end of the training ones


@dataclass(frozen=True)
class Config(TextConfig):
    max_tokens: Count = 12  # longest completion: four hash signs and a number are about eight tokens
    prompt: Words | None = "{question} Give only the result after ####."  # prompt, with {question} in it
    validation: Problems = 200  # size of the validation split, held out of the 1,200 problems for training
    test: Problems = 200  # size of the test split, at most 200


def make(config: Config, seed: int, device: str | torch.device) -> TextEnv:
    problems = questions()
    train, test = problems[:TRAIN], problems[TRAIN:][: config.test]
    held_out = min(config.validation, TRAIN - 1)
    splits = {"train": train[: TRAIN - held_out], "validation": train[TRAIN - held_out :], "test": test}
    sizes = ", ".join(f"{len(rows):,} {split}" for split, rows in splits.items())
    return text_env(config, splits, f"arithmetic: generated questions of two numbers ({sizes})", seed, device)


def questions() -> list[Problem]:
    """1,400 different ones, always the same."""
    draw = random.Random(1)
    pairs: dict[str, tuple[Callable[[], tuple[int, int]], Callable[[int, int], int]]] = {
        "+": (lambda: (draw.randint(10, 99), draw.randint(10, 99)), lambda a, b: a + b),
        "-": (lambda: (draw.randint(30, 99), draw.randint(1, 29)), lambda a, b: a - b),
        "*": (lambda: (draw.randint(2, 12), draw.randint(2, 12)), lambda a, b: a * b),
    }
    kinds = {"+": "sum", "-": "difference", "*": "product"}
    found: dict[str, Problem] = {}
    while len(found) < TRAIN + TEST:
        sign = draw.choice("+-*")
        numbers, result = pairs[sign]
        a, b = numbers()
        question = f"What is {a} {sign} {b}?"
        found.setdefault(question, Problem(question, f"{MARKER} {result(a, b)}", kinds[sign]))
    return list(found.values())
