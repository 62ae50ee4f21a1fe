"""Versions of `transformers` that are no measure of what rlkit reads."""

from importlib.metadata import version

import pytest

# Older ones give a GGUF file's texts without the first token, or fail, and they write the ## of pieces.
reads_rightly = pytest.mark.skipif(
    tuple(map(int, version("transformers").split(".")[:2])) < (5, 23), reason="transformers is older than 5.23"
)
