"""The header of a GGUF file, read with limits: its fields, and the position of each tensor.

The reader of the package `gguf` trusts the sizes in a file: it creates an object for each entry of an array, and never
returns for an array that is longer than its file. So this module reads the header; the package only dequantizes.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlkit import memory
from rlkit.errors import UserError

HEADER = 2**26  # most bytes; published models have less than 15 MB
KEYS = 2**12  # most keys; published models have fewer than a hundred
ENTRIES = 2**21  # most entries of all arrays together; a vocabulary of 262,144 tokens with merges takes 1.3 million
TENSORS = 2**16
VERSIONS = (2, 3)  # version 1 had lengths of 32 bits
TEXT, ARRAY = 8, 9  # types of values; the others are numbers, given by their struct letters:
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
Values = dict[str, Any]  # fields of a file; `files.Fields` checks those that are read
Listed = tuple[list[int], int, int]  # of a tensor: sizes, quantization, offset in the data


@dataclass(frozen=True)
class Block:
    """The position of a tensor in a file and its encoding; `sizes` are in torch's order."""

    file: Path
    name: str
    kind: Any  # Any: gguf.GGMLQuantizationType has no types
    sizes: tuple[int, ...]
    start: int
    size: int  # in bytes

    @property
    def count(self) -> int:
        return math.prod(self.sizes)

    def read(self) -> Tensor:
        """The values in float32."""
        from gguf import dequantize

        memory.check(8 * self.count, f"{self.file}: {self.name}", "take a smaller model")
        rows = self.count // self.sizes[-1]
        data = np.memmap(self.file, np.uint8, "r", self.start, (rows, self.size // rows))
        try:
            found = np.array(dequantize(data, self.kind), dtype=np.float32).reshape(self.sizes)
        except (NotImplementedError, ValueError):
            kind = self.kind.name
            raise UserError(
                f"{self.file}: {self.name} cannot be read (quantization {kind}): take another file"
            ) from None
        return torch.from_numpy(found)


def read(path: Path) -> tuple[Values, dict[str, Block]]:
    """The fields and the tensors of a file, by name.

    Raises: UserError where the file is damaged, or larger than any model needs.
    """
    try:
        from gguf import GGML_QUANT_SIZES
    except ImportError:
        raise UserError(f"{path}: GGUF files need a package: pip install gguf") from None
    try:
        with path.open("rb") as file:
            header = Header(file.read(HEADER))
        fields, listed = header.fields(), header.tensors()
        return fields, _placed(path, listed, header.end(fields.get("general.alignment", 32)), GGML_QUANT_SIZES)
    except struct.error:
        told = f"it ends early, or its header has more than {HEADER // 2**20} MB"
        raise UserError(f"{path}: not a readable GGUF file ({told}); copy it again") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: not a readable GGUF file ({error}); copy it again") from None


def _placed(
    path: Path, listed: dict[str, Listed], begin: int, kinds: Mapping[Any, tuple[int, int]]
) -> dict[str, Block]:
    """The position of each tensor; together they must fit into the file. kinds: elements and bytes of a block."""
    by_number = {int(kind): kind for kind in kinds}
    found, room = {}, path.stat().st_size
    left = room - begin
    for name, (sizes, number, offset) in listed.items():
        if number not in by_number:
            raise ValueError(f"{_shown(name)} is of the unknown quantization {number}")
        kind = by_number[number]
        together, taken = kinds[kind]
        if sizes[-1] % together or not all(sizes):
            raise ValueError(f"{_shown(name)} cannot have the sizes {sizes}")
        size = math.prod(sizes) // together * taken
        left -= size
        if left < 0 or begin + offset + size > room:
            raise ValueError(f"it ends before {_shown(name)} does")
        found[name] = Block(path, name, kind, tuple(sizes), begin + offset, size)
    return found


def _shown(name: str) -> str:
    return repr(name[:80])


class Header:
    """Reads a header value by value. Raises: struct.error at its end, or ValueError."""

    def __init__(self, data: bytes):
        self.data, self.at, self.entries = data, 0, 0
        if data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self.at = 4
        if (version := self._number("I")) not in VERSIONS:
            raise ValueError(f"its version is {version}, and 2 and 3 are read")
        self.count_tensors, self.count_keys = self._number("Q"), self._number("Q")
        if self.count_keys > KEYS or self.count_tensors > TENSORS:
            raise ValueError(f"{self.count_keys:,} keys and {self.count_tensors:,} tensors, which no model has")

    def fields(self) -> Values:
        found: Values = {}
        for _ in range(self.count_keys):
            key = self._text()
            if key in found:
                raise ValueError(f"the key {_shown(key)} is there twice")
            found[key] = self._value(key, self._number("I"))
        return found

    def tensors(self) -> dict[str, Listed]:
        """Tensors by name; sizes are in torch's order."""
        found: dict[str, Listed] = {}
        for _ in range(self.count_tensors):
            name, dimensions = self._text(), self._number("I")
            if name in found or not 1 <= dimensions <= 4:
                raise ValueError(f"the tensor {_shown(name)} is there twice, or has not 1 to 4 dimensions")
            sizes = [self._number("Q") for _ in range(dimensions)]
            found[name] = (sizes[::-1], self._number("I"), self._number("Q"))
        return found

    def end(self, alignment: object) -> int:
        """The offset where the data begin."""
        if not isinstance(alignment, int) or not 1 <= alignment <= 2**20 or alignment.bit_count() > 1:
            raise ValueError("general.alignment is not a power of two")
        return -(-self.at // alignment) * alignment

    def _value(self, key: str, kind: int) -> object:
        if kind == TEXT:
            return self._text()
        if kind != ARRAY:
            return self._number(self._letter(key, kind))
        kind, length = self._number("I"), self._number("Q")
        self.entries += length
        if self.entries > ENTRIES:
            raise ValueError(f"with {_shown(key)} its arrays have {self.entries:,} entries, which no model needs")
        if kind == TEXT:
            return [self._text() for _ in range(length)]
        return list(self._numbers(length, self._letter(key, kind)))

    def _letter(self, key: str, kind: int) -> str:
        if kind not in NUMBERS:
            raise ValueError(f"{_shown(key)} is of the unknown type {kind}")
        return NUMBERS[kind]

    def _number(self, letter: str) -> Any:  # Any: int, float or bool, as the letter says
        return self._numbers(1, letter)[0]

    def _numbers(self, count: int, letter: str) -> tuple[Any, ...]:
        format = f"<{count}{letter}"
        found = struct.unpack_from(format, self.data, self.at)
        self.at += struct.calcsize(format)
        return found

    def _text(self) -> str:
        length = self._number("Q")
        if self.at + length > len(self.data):
            raise struct.error
        self.at += length
        return self.data[self.at - length : self.at].decode()
