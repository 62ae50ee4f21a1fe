"""The order in which rows of a dataset are used."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlkit.seeding import numpy_generator

Whole = NDArray[np.int64]


class Shuffle:
    """Rows of a data set, each once per epoch in a new order: a pure function of the seed, the name and a counter.

    With `lengths`, rows in the same batch have similar lengths, if every call takes the same count.
    """

    def __init__(self, size: int, seed: int, name: str, lengths: Sequence[int] | None = None) -> None:
        self.size, self.seed, self.name = size, seed, name
        self.lengths = None if lengths is None else np.asarray(lengths)
        self.drawn = 0
        self._orders: dict[tuple[int, int], Whole] = {}

    def take(self, count: int) -> list[int]:
        """The next `count` rows; afterwards their positions in the stream are `drawn - count` to `drawn - 1`."""
        places = range(self.drawn, self.drawn + count)
        self.drawn += count
        return [int(self._order(place // self.size, count)[place % self.size]) for place in places]

    def _order(self, epoch: int, count: int) -> Whole:
        if (epoch, count) not in self._orders:
            draw = numpy_generator(self.seed, self.name, epoch)
            order = draw.permutation(self.size)
            if self.lengths is not None:
                order = _similar_lengths(order, self.lengths[order], count, draw)
            # A batch spans two epochs, or more if it is larger than the dataset; no cache is needed then.
            self._orders = {key: kept for key, kept in self._orders.items() if key == (epoch - 1, count)}
            self._orders[epoch, count] = order
        return self._orders[epoch, count]


def _similar_lengths(order: Whole, lengths: Whole, count: int, draw: np.random.Generator) -> Whole:
    """The same rows, rearranged into batches of similar length, so that there is little padding."""
    parts = []
    for start in range(0, len(order), 32 * count):
        window = order[start : start + 32 * count][np.argsort(lengths[start : start + 32 * count], kind="stable")]
        batches = np.split(window, range(count, len(window), count))
        short = [batches.pop()] if len(batches[-1]) < count else []  # last, so that the others stay aligned
        parts += [batches[index] for index in draw.permutation(len(batches))] + short
    return np.concatenate(parts)
