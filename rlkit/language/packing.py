"""The layout in which a model reads rows to learn from them: what rows begin with alike once, and nothing padded.

Linear layers see all tokens in one line: each distinct beginning (a prompt), then what each row has of its own. Only
attention needs tables: a beginning looks at itself, and a row's own tokens at the whole row.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

WIDTH = 16  # a table's width is a multiple of it: else the kernel's arithmetic for a row depends on the others' length
ROWS = 32  # of a table: rows of similar length are together, so little of it is padding


@dataclass(frozen=True)
class Table:
    """S rows of which C tokens look at T; what stands past a row's end means nothing and is looked at by nobody."""

    own: Tensor  # [S, C] which of the N tokens look
    row: Tensor  # [S, T] at which of the N
    looks: Tensor  # [S, C] False where `own` is padding
    bias: Tensor | None  # [S, 1, C, T] 0 up to the token itself, -inf after it; None: C = T, and causal

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
    positions: Tensor  # [1, N] in the row
    place: Tensor  # [B, T] which of the N stands there
    tables: list[Table]
    own: Tensor  # [ΣS·C] which of the N stand in `own` of the tables, one after the other
    row: Tensor  # [ΣS·T] and in `row`
    back: Tensor  # [N] where each token stands in `own`

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention within rows; query [1, H, N, D], key and value [1, K, N, D] → [1, H, N, D]."""
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        # One take for all tables: the backward pass of each would write a gradient for all of the N.
        queries = torch.split(_take(q, self.own), [table.own.numel() for table in self.tables])
        seen = [table.row.numel() for table in self.tables]
        keys, values = torch.split(_take(k, self.row), seen), torch.split(_take(v, self.row), seen)
        out = torch.cat([t.attend(*qkv) for t, *qkv in zip(self.tables, queries, keys, values, strict=True)])
        return _take(out, self.back).transpose(0, 1)[None]


def moved(packing: Packing, device: torch.device) -> Packing:
    """The same layout on another device, also on one that computes sizes only."""

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
    """Rows `text` [B, T] up to `stop` [B] tokens; rows of one `label` [B] share their first `start` [B] tokens.

    Labels are 0 .. P-1, and 1 ≤ start ≤ stop. A row that shares with no other is cut in two all the same: so it is read
    by the same arithmetic whatever rows are beside it; in bfloat16 a difference would show.
    """
    count, column = torch.bincount(label), torch.arange(int(stop.max()), device=text.device)
    text = text[:, : len(column)]
    first = torch.empty_like(count).scatter_(0, label, torch.arange(len(text), device=text.device))  # a row of each
    begun, owned = start[first], stop - start
    at_begin, at_own = column < begun[:, None], (column >= start[:, None]) & (column < stop[:, None])
    tokens = torch.cat((text[first][at_begin], text[at_own]))
    positions = torch.cat((column.expand(at_begin.shape)[at_begin], column.expand(at_own.shape)[at_own]))
    before = (begun.cumsum(0) - begun)[label][:, None]  # of each row's beginning among the N
    inner = (begun.sum() + owned.cumsum(0) - owned)[:, None] - start[:, None]  # and of its column 0, were it its own
    place = column + torch.where(column < start[:, None], before, inner)
    place = place.where(column < stop[:, None], 0)
    wide = F.pad(place, (0, -len(column) % WIDTH))
    tables = _beginnings(wide[first], begun) + _endings(wide, start, stop)
    looks = torch.cat([table.looks.flatten() for table in tables]).nonzero()[:, 0]
    own, row = torch.cat([t.own.flatten() for t in tables]), torch.cat([t.row.flatten() for t in tables])
    back = torch.empty_like(looks).scatter_(0, own[looks], looks)
    return Packing(tokens[None], positions[None], place, tables, own, row, back)


def _beginnings(place: Tensor, length: Tensor) -> list[Table]:
    """Rows [P, T] of which the first `length` [P] tokens look at themselves."""
    tables = []
    for chosen in _alike(length):
        size = length[chosen, None]
        own = place[chosen, : _width(size)]
        tables.append(Table(own, own, _column(own) < size, None))
    return tables


def _endings(place: Tensor, start: Tensor, stop: Tensor) -> list[Table]:
    """Rows [B, T] of which the tokens from `start` [B] to `stop` [B] look at the whole row."""
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
    """The indices of lengths that are not 0, those of similar length together."""
    order = length.argsort(stable=True)
    parts: tuple[Tensor, ...] = torch.split(order[length[order] > 0], ROWS)
    return [part for part in parts if len(part)]


def _take(x: Tensor, index: Tensor) -> Tensor:
    """x[index] of x [N, H, D]; as an embedding it is fast on a CPU and, on a GPU, its gradient repeats bitwise."""
    return F.embedding(index, x.flatten(1)).view(*index.shape, *x.shape[1:])
