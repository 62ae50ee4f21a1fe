"""The columns of a ring of steps as arrays: numpy writes and reads a few rows in a third of the time of torch."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from rlkit.attributes import Derived

Array = NDArray[Any]
Kind = tuple[torch.dtype, torch.Size]  # type of a column, and shape of a step


def array_of(x: Tensor) -> Array | Tensor:
    """The same memory as an array; the tensor itself where numpy cannot see it, or has no such type."""
    return x.numpy() if x.device.type == "cpu" and x.dtype is not torch.bfloat16 else x


def kinds_of(steps: dict[str, Tensor]) -> dict[str, Kind]:
    """steps: [N, ...] each."""
    return {key: (x.dtype, x.shape[1:]) for key, x in steps.items()}


class Columns(Derived):
    """What `store` holds [slots, ...], in the same memory."""

    def __init__(self, store: dict[str, Tensor]) -> None:
        self.store, self.kinds = store, kinds_of(store)
        self.arrays = {key: array_of(x) for key, x in store.items()}

    def __deepcopy__(self, memo: object) -> "Columns":
        return Columns({})  # the arrays of a copy are those of its own store

    def write(self, start: int, stop: int, steps: dict[str, Tensor], first: int = 0) -> None:
        """Put steps[first:] into the slots from `start` to before `stop`."""
        for key, column in self.arrays.items():
            column[start:stop] = array_of(steps[key])[first : first + stop - start]  # type: ignore[assignment]

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """The steps in some slots, copied."""
        found, places = {}, array_of(index)
        for key, column in self.arrays.items():
            if isinstance(column, Tensor):
                found[key] = column.index_select(0, index.to(column.device))
            else:
                found[key] = torch.from_numpy(column.take(places, 0))
        return found
