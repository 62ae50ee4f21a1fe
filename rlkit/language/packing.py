"""The layout in which a model reads rows to learn from them: what rows begin with alike once, and nothing padded.

Linear layers see all tokens in one line: each distinct beginning (a prompt), then what each row has of its own. Only
attention needs tables: a beginning looks at itself, and a row's own tokens at the whole row.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """N tokens of B rows: P beginnings of up to W tokens, then S rows with up to C tokens of their own."""

    tokens: Tensor  # [1, N]
    positions: Tensor  # [1, N] in the row
    place: Tensor  # [B, T] which of the N stands there; past a row's end it means nothing, as in all tables
    beginnings: Tensor  # [P, W] which of the N
    rows: Tensor  # [S, T] which of the N, of the rows that have tokens of their own
    own: Tensor  # [S, C] which of the N
    unpadded: Tensor  # [N] where each token stands in the tables `beginnings` and `own`, one after the other
    bias: Tensor  # [S, 1, C, T] 0 where an own token looks at its row, -inf after itself

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention within rows; query [1, H, N, D], key and value [1, K, N, D] → [1, H, N, D]."""
        grouped = query.shape[1] != key.shape[1]
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        at = self.beginnings
        out = F.scaled_dot_product_attention(
            _take(q, at), _take(k, at), _take(v, at), is_causal=True, enable_gqa=grouped
        )
        out = out.transpose(1, 2).flatten(0, 1)
        if len(self.own):
            mine = F.scaled_dot_product_attention(
                _take(q, self.own),
                _take(k, self.rows),
                _take(v, self.rows),
                attn_mask=self.bias.to(q.dtype),
                enable_gqa=grouped,
            )
            out = torch.cat((out, mine.transpose(1, 2).flatten(0, 1)))
        return _rows(out, self.unpadded).transpose(0, 1)[None]


def pack(text: Tensor, start: Tensor, stop: Tensor, label: Tensor) -> Packing:
    """Rows `text` [B, T] up to `stop` [B] tokens; rows of one `label` [B] share their first `start` [B] tokens.

    Labels are 0 .. P-1, and 1 ≤ start ≤ stop. A row that shares with no other is all beginning.
    """
    count, column = torch.bincount(label), torch.arange(int(stop.max()), device=text.device)
    text = text[:, : len(column)]
    start = torch.where(count[label] == 1, stop, start)
    first = torch.empty_like(count).scatter_(0, label, torch.arange(len(text), device=text.device))  # a row of each
    begun, owned = start[first], stop - start
    at_begin, at_own = column < begun[:, None], (column >= start[:, None]) & (column < stop[:, None])
    tokens = torch.cat((text[first][at_begin], text[at_own]))
    positions = torch.cat((column.expand(at_begin.shape)[at_begin], column.expand(at_own.shape)[at_own]))
    before = (begun.cumsum(0) - begun)[label][:, None]  # of each row's beginning among the N
    inner = (begun.sum() + owned.cumsum(0) - owned)[:, None] - start[:, None]  # and of its column 0, were it its own
    place = column + torch.where(column < start[:, None], before, inner)
    place = place.where(column < stop[:, None], 0)
    width, written = int(begun.max()), (owned > 0).nonzero()[:, 0]
    own_width = int(owned.max())
    table = place[first][:, :width]
    reach = column[:own_width] + start[written, None]  # columns of the own tokens
    own = place[written].gather(1, reach.clamp(max=text.shape[1] - 1))
    bias = torch.zeros(len(written), 1, own_width, text.shape[1], device=text.device)
    bias.masked_fill_(column > reach[:, None, :, None], -torch.inf)
    there = torch.cat((at_begin[:, :width].flatten(), (column[:own_width] < owned[written, None]).flatten()))
    return Packing(tokens[None], positions[None], place, table, place[written], own, there.nonzero()[:, 0], bias)


def _take(x: Tensor, table: Tensor) -> Tensor:
    """Heads [N, H, D] in the places of a table [R, T]: [R, H, T, D]."""
    return _rows(x, table).transpose(1, 2)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index] of x [N, H, D]; as an embedding it is fast on a CPU and, on a GPU, its gradient repeats bitwise."""
    return F.embedding(index, x.flatten(1)).view(*index.shape, *x.shape[1:])
