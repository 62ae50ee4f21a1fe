"""The key-value cache of generation: a prompt is stored once for all its attempts, each row's own part separately."""

import torch
from torch import Tensor

from rlkit.language.precision import product

Stored = list[tuple[Tensor, Tensor]]  # (keys, values) [P, kv_heads, W, head_dim] of each layer


class Cache:
    """The prompts' part [P, K, W, D] is shared by all G attempts and never copied.

    The rows' own part [R, K, C, D] has one column per written token; all rows write the same column, whatever their
    positions. Whole blocks are read (a slice of columns is several times slower on a CPU, and a CUDA graph needs one
    shape): a bias hides columns that are not written yet, and `grow` adds a block when the last one is full.
    """

    def __init__(self, prompts: Stored, length: Tensor, repeats: int, block: int):
        keys = prompts[0][0]
        count, heads, width, dim = keys.shape
        self.repeats, self.block = repeats, block
        self.prompt_keys = [pair[0].contiguous() for pair in prompts]
        self.prompt_values = [pair[1].contiguous() for pair in prompts]
        unread = torch.arange(width, device=keys.device) >= length[:, None]
        self.prompt_bias = torch.zeros(unread.shape, device=keys.device).masked_fill_(unread, -torch.inf)[:, None, None]
        self.slot = torch.arange(count * repeats, device=keys.device)  # of each row: prompt · G + attempt
        self.keys = [keys.new_zeros(len(self.slot), heads, block, dim) for _ in prompts]
        self.values = [keys.new_zeros(len(self.slot), heads, block, dim) for _ in prompts]
        self.bias = torch.full((block,), -torch.inf, device=keys.device)
        self.column = torch.full((1,), -1, device=keys.device)  # the column that is being written

    def advance(self) -> None:
        """Advance to the next column."""
        self.column += 1
        self.bias.index_fill_(0, self.column, 0.0)

    def grow(self) -> None:
        """Add a block of columns."""
        for parts in (self.keys, self.values):
            for layer, part in enumerate(parts):
                rows, heads, columns, dim = part.shape
                parts[layer] = part.new_zeros(rows, heads, columns + self.block, dim)
                parts[layer][:, :, :columns] = part
        self.bias = torch.cat((self.bias, torch.full_like(self.bias[: self.block], -torch.inf)))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write the current column, then attend to prompt and columns; query [R, H, 1, D], key, value [R, K, 1, D]."""
        keys = self.keys[layer].index_copy_(2, self.column, key)
        values = self.values[layer].index_copy_(2, self.column, value)
        rows, heads, _, dim = query.shape
        query = query.reshape(rows, keys.shape[1], -1, dim) * dim**-0.5
        read = self._rows(product(self._prompts(query), self.prompt_keys[layer].mT) + self.prompt_bias)
        written = product(query, keys.mT) + self.bias
        weights = torch.cat((read, written), -1).softmax(-1).to(values.dtype)
        read, written = torch.split(weights, [read.shape[-1], written.shape[-1]], -1)
        out = self._rows(self._prompts(read) @ self.prompt_values[layer]) + written @ values
        return out.reshape(rows, heads, 1, dim)

    def _prompts(self, x: Tensor) -> Tensor:
        """Rows [R, K, g, ·] grouped by prompt, [P, K, G·g, ·]; dropped rows are zero."""
        table = x.new_zeros(len(self.prompt_bias) * self.repeats, *x.shape[1:]).index_copy_(0, self.slot, x)
        return torch.unflatten(table, 0, (-1, self.repeats)).transpose(1, 2).flatten(2, 3)

    def _rows(self, x: Tensor) -> Tensor:
        """The inverse of `_prompts`."""
        return torch.unflatten(x, 2, (self.repeats, -1)).transpose(1, 2).flatten(0, 1)[self.slot]

    def drop(self, alive: Tensor) -> None:
        """Keep the rows [R] that are alive, and their prompts, in the order of `close_gaps`."""
        self.slot, *parts = close_gaps([self.slot, *self.keys, *self.values], alive)
        self.keys, self.values = parts[: len(self.keys)], parts[len(self.keys) :]
        owner = self.slot // self.repeats
        needed = torch.zeros(len(self.prompt_bias), dtype=torch.bool, device=owner.device)
        needed[owner] = True
        if int(needed.sum()) > 0.75 * len(needed):
            return
        place = torch.arange(len(needed), device=owner.device)
        moved, self.prompt_bias, *parts = close_gaps(
            [place.clone(), self.prompt_bias, *self.prompt_keys, *self.prompt_values], needed
        )
        self.prompt_keys, self.prompt_values = parts[: len(self.keys)], parts[len(self.keys) :]
        place[moved] = torch.arange(len(moved), device=owner.device)
        self.slot = place[owner] * self.repeats + self.slot % self.repeats


def close_gaps(parts: list[Tensor], alive: Tensor) -> list[Tensor]:
    """The alive rows of each part, as views. In place: the last rows move into the gaps that dead rows leave."""
    count = int(alive.sum())
    gaps = (~alive[:count]).nonzero()[:, 0]
    movers = alive[count:].nonzero()[:, 0] + count
    for part in parts:
        part[gaps] = part[movers]
    return [part[:count] for part in parts]
