"""The layout of rows for learning: a beginning that rows share is stored once, and nothing is padded.

Linear layers see all tokens in one line: each distinct beginning (a prompt), then the remaining tokens of rows. Only
attention needs tables: a beginning attends to itself, and the remaining tokens of a row attend to the whole row.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

WIDTH = 16  # table widths are multiples of it; otherwise the rounding of a row depends on other rows
ROWS = 32  # rows in a table: they have similar lengths, so there is little padding


@dataclass(frozen=True)
class Table:
    """S rows in which C tokens attend to T; positions past a row's end are undefined and never attended to."""

    own: Tensor  # [S, C] indices of the attending tokens among the N
    row: Tensor  # [S, T] indices of the tokens attended to
    looks: Tensor  # [S, C] False where `own` is padding
    bias: Tensor | None  # [S, 1, C, T] 0 up to the token itself, -inf after it; None: C = T, causal attention

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Query [S·C, H, D], key and value [S·T, K, D] → [S·C, H, D]."""
        out = F.scaled_dot_product_attention(
            query.view(*self.own.shape, *query.shape[1:]).transpose(1, 2),
            key.view(*self.row.shape, *key.shape[1:]).transpose(1, 2),
            value.view(*self.row.shape, *value.shape[1:]).transpose(1, 2),
            attn_mask=None if self.bias is None else self.bias.to(query.dtype),
            is_causal=self.bias is None,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out.transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True)
class Packing:
    """N tokens of B rows of up to T tokens."""

    tokens: Tensor  # [1, N]
    positions: Tensor  # [1, N] position in the row
    place: Tensor  # [B, T] index among the N
    tables: list[Table]
    own: Tensor  # [ΣS·C] the `own` of all tables, concatenated
    row: Tensor  # [ΣS·T] the `row` of all tables, concatenated
    back: Tensor  # [N] position of each token in `own`

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention within rows; query [1, H, N, D], key and value [1, K, N, D] → [1, H, N, D]."""
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        # One gather for all tables: with one for each, each backward pass would write a gradient for all N tokens.
        queries = torch.split(_take(q, self.own), [table.own.numel() for table in self.tables])
        seen = [table.row.numel() for table in self.tables]
        keys, values = torch.split(_take(k, self.row), seen), torch.split(_take(v, self.row), seen)
        out = torch.cat([t.attend(*qkv) for t, *qkv in zip(self.tables, queries, keys, values, strict=True)])
        return _take(out, self.back).transpose(0, 1)[None]


def moved(packing: Packing, device: torch.device) -> Packing:
    """The same layout on another device, which may compute sizes only."""

    def to(x: Tensor) -> Tensor:
        return x.to(device)

    return Packing(
        tokens=to(packing.tokens),
        positions=to(packing.positions),
        place=to(packing.place),
        tables=[
            Table(to(t.own), to(t.row), to(t.looks), None if t.bias is None else to(t.bias)) for t in packing.tables
        ],
        own=to(packing.own),
        row=to(packing.row),
        back=to(packing.back),
    )


def pack(text: Tensor, start: Tensor, stop: Tensor, label: Tensor) -> Packing:
    """Pack rows `text` [B, T] of `stop` [B] tokens; rows of one `label` [B] share their first `start` [B] tokens.

    Labels are 0 .. P-1, and 1 ≤ start ≤ stop. A row that shares its beginning with no other is split as well: so its
    arithmetic does not depend on other rows; in bfloat16 a difference would show.
    """
    count, column = torch.bincount(label), torch.arange(int(stop.max()), device=text.device)
    text = text[:, : len(column)]
    first = torch.empty_like(count).scatter_(0, label, torch.arange(len(text), device=text.device))  # one per label
    begun, owned = start[first], stop - start
    at_begin, at_own = column < begun[:, None], (column >= start[:, None]) & (column < stop[:, None])
    tokens = torch.cat((text[first][at_begin], text[at_own]))
    positions = torch.cat((column.expand(at_begin.shape)[at_begin], column.expand(at_own.shape)[at_own]))
    before = (begun.cumsum(0) - begun)[label][:, None]  # index of each row's beginning among the N
    inner = (begun.sum() + owned.cumsum(0) - owned)[:, None] - start[:, None]  # of its column 0, if stored whole
    place = column + torch.where(column < start[:, None], before, inner)
    place = place.where(column < stop[:, None], 0)
    wide = F.pad(place, (0, -len(column) % WIDTH))
    tables = _beginnings(wide[first], begun) + _endings(wide, start, stop)
    looks = torch.cat([table.looks.flatten() for table in tables]).nonzero()[:, 0]
    own, row = torch.cat([t.own.flatten() for t in tables]), torch.cat([t.row.flatten() for t in tables])
    back = torch.empty_like(looks).scatter_(0, own[looks], looks)
    return Packing(tokens[None], positions[None], place, tables, own, row, back)


def _beginnings(place: Tensor, length: Tensor) -> list[Table]:
    """Tables of rows [P, T] whose first `length` [P] tokens attend to themselves."""
    tables = []
    for chosen in _alike(length):
        size = length[chosen, None]
        own = place[chosen, : _width(size)]
        tables.append(Table(own, own, _column(own) < size, None))
    return tables


def _endings(place: Tensor, start: Tensor, stop: Tensor) -> list[Table]:
    """Tables of rows [B, T] whose tokens from `start` [B] to `stop` [B] attend to the whole row."""
    tables = []
    for chosen in _alike(stop - start):
        row, size = place[chosen, : _width(stop[chosen])], (stop - start)[chosen, None]
        reach = start[chosen, None] + _column(row)[: int(size.max())]  # the columns of the own tokens
        bias = torch.zeros(len(row), 1, reach.shape[1], row.shape[1], device=row.device)
        bias.masked_fill_(_column(row) > reach[:, None, :, None], -torch.inf)
        own = row.gather(1, reach.clamp(max=row.shape[1] - 1))
        tables.append(Table(own, row, _column(own) < size, bias))
    return tables


def _width(length: Tensor) -> int:
    return -(-int(length.max()) // WIDTH) * WIDTH


def _column(table: Tensor) -> Tensor:
    return torch.arange(table.shape[1], device=table.device)


def _alike(length: Tensor) -> list[Tensor]:
    """The indices of lengths that are not 0, grouped by similar length."""
    order = length.argsort(stable=True)
    parts: tuple[Tensor, ...] = torch.split(order[length[order] > 0], ROWS)
    return [part for part in parts if len(part)]


def _take(x: Tensor, index: Tensor) -> Tensor:
    """x[index] of x [N, H, D]. An embedding is fast on a CPU, and its gradient is deterministic on a GPU."""
    return F.embedding(index, x.flatten(1)).view(*index.shape, *x.shape[1:])
