"""An engine for models of `transformers`: in each step, all rows of a chunk read one token of the same column.

So there is no padding, and the model's own treatment of positions is correct. The columns that all prompts of a chunk
have are read at once; rows with longer prompts then read on, token by token, while others already write.
"""

from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.attributes import Derived
from rlkit.language.causal import Causal
from rlkit.language.foreign import Foreign, rearrange
from rlkit.language.generate import BLOCK, Chunk, Completions, Prompts, choose, sample
from rlkit.language.precision import wide
from rlkit.language.stopping import EVERY
from rlkit.language.turns import Spans, Talk, Turns, in_chunks, spans


class Lockstep(Derived):
    """Writes text with the learner's own weights."""

    note, exact = "", True

    def __init__(self) -> None:
        self.decoder: Foreign | None = None

    def sync(self, decoder: Causal) -> None:
        if not isinstance(decoder, Foreign):
            raise TypeError(f"this engine writes with models of transformers and was given a {type(decoder).__name__}")
        self.decoder, self.exact = decoder, decoder.dtype in (torch.float32, torch.float64)

    def write(self, prompts: Prompts, max_tokens: int) -> Completions:
        assert self.decoder is not None, "sync before write"
        return sample(partial(_write, self.decoder), self.decoder.head, prompts, max_tokens)

    def converse(self, prompts: Prompts, talk: Talk) -> Spans:
        assert self.decoder is not None, "sync before converse"
        return in_chunks(partial(_converse, self.decoder), self.decoder.head.device, prompts, talk)

    def __deepcopy__(self, memo: dict[int, object]) -> "Lockstep":
        """A copy of a policy gets an engine of its own."""
        return Lockstep()


@torch.no_grad()
def _write(decoder: Foreign, chunk: Chunk, tokens: Tensor, log_prob: Tensor) -> None:
    """Write the columns `chunk.row` [R] of tokens and log_prob [T, R']."""
    first, prompts, repeats = 0, chunk.prompts, chunk.repeats
    while first < len(prompts):
        # Much longer prompts are left to later chunks: they would be read mostly token by token.
        near = [prompt for prompt in prompts[first:] if len(prompt) <= len(prompts[first]) + len(tokens)]
        end = first + len(near)
        writing = _Writing(decoder, replace(chunk, prompts=near, row=chunk.row[first * repeats : end * repeats]))
        while writing.choose(tokens, log_prob):
            writing.step()
        first = end


class _Writing:
    """The unfinished rows [R] of one chunk."""

    def __init__(self, decoder: Foreign, chunk: Chunk):
        prompts, repeats, rule, row = chunk.prompts, chunk.repeats, chunk.rule, chunk.row
        self.decoder, self.rule, self.row, self.uniform = decoder, rule, row, chunk.uniform
        width, self.column = len(prompts[-1]), len(prompts[0])  # column: of the next token to choose
        padded = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts], device=row.device)
        self.text = padded.repeat_interleave(repeats, 0)  # [R, W]
        self.start = torch.tensor([len(p) for p in prompts], device=row.device).repeat_interleave(repeats)
        self.token, self.finished = torch.zeros_like(row), torch.zeros_like(row, dtype=torch.bool)
        self.cache = decoder.start()
        self.logits = decoder.step(padded[:, : self.column], self.cache).repeat_interleave(repeats, 0)
        rearrange(self.cache, torch.arange(len(padded), device=row.device).repeat_interleave(repeats))
        self.stops = torch.tensor(rule.stops, device=row.device)
        self.forbidden = torch.zeros_like(self.logits[0], dtype=torch.bool)
        self.forbidden[list(rule.forbidden)] = True

    def choose(self, tokens: Tensor, log_prob: Tensor) -> bool:
        """Choose one token for each row, and read it. Returns: False where every row has ended."""
        time = self.column - self.start  # index in each row's own text; negative within its prompt
        logits = self.logits.masked_fill((time == 0)[:, None] & self.forbidden, -torch.inf)
        draw = None if self.uniform is None else self.uniform[time.clamp(0, len(tokens) - 1), self.row]
        token, said = choose(logits, self.rule, draw)
        at = ((time >= 0) & ~self.finished).nonzero()[:, 0]
        tokens[time[at], self.row[at]], log_prob[time[at], self.row[at]] = token[at], said[at]
        self.token = torch.where(time < 0, self.text[:, min(self.column, self.text.shape[1] - 1)], token)
        self.finished[at] = torch.isin(token[at], self.stops) | (time[at] == len(tokens) - 1)
        if self.rule.stopping is not None and self.column % EVERY == 0:
            self._look(tokens, time)
        self.column += 1
        return self._drop()

    def step(self) -> None:
        self.logits = self.decoder.step(self.token[:, None], self.cache)

    def _look(self, tokens: Tensor, time: Tensor) -> None:
        """Finish the rows whose text contains a stop string."""
        at = ((time >= 0) & ~self.finished).nonzero()[:, 0]
        assert self.rule.stopping is not None
        written = tokens[:, self.row[at]].T.tolist()
        rows = [text[: end + 1] for text, end in zip(written, time[at].tolist(), strict=True)]
        self.finished[at] = torch.tensor(self.rule.stopping.lately(rows), dtype=torch.bool, device=at.device)

    def _drop(self) -> bool:
        """Drop finished rows once they are a tenth of all; False where no row is left."""
        alive = (~self.finished).nonzero()[:, 0]
        if not len(alive) or len(alive) > 0.9 * len(self.finished):
            return len(alive) > 0
        self.row, self.token, self.text = self.row[alive], self.token[alive], self.text[alive]
        self.start, self.finished = self.start[alive], self.finished[alive]
        rearrange(self.cache, alive)
        return True


@torch.no_grad()
def _converse(decoder: Foreign, chunk: Chunk, talk: Talk) -> Spans:
    talking = _Talking(decoder, chunk, talk)
    while talking.answered():
        talking.step()
    table = {"tokens": talking.said, "acted": talking.acted, "ends": talking.ends, "log_prob": talking.log_prob}
    return spans(table, talking.turns)


class _Talking(_Writing):
    """The unfinished conversations [R] of one chunk; a reply is read as if the prompt were longer."""

    def __init__(self, decoder: Foreign, chunk: Chunk, talk: Talk):
        self.number, rows = chunk.row, len(chunk.row)
        super().__init__(decoder, replace(chunk, row=torch.arange(rows, device=self.number.device)))
        self.turns = Turns(self.number.tolist(), self.start.tolist(), chunk.rule, talk)
        self.count = torch.zeros_like(self.number)  # number of tokens that each row wrote
        # [R, T] of all rows, wider as they grow: a context may be millions of tokens; column 0 follows the prompt
        self.said = self.text.new_zeros(rows, BLOCK["cpu"])
        self.given = torch.full_like(self.said, -1)  # tokens to read; -1: the row writes
        self.acted, self.ends = (torch.zeros_like(self.said, dtype=torch.bool) for _ in range(2))
        self.log_prob = torch.zeros_like(self.said, dtype=wide(decoder.head.dtype))

    def answered(self) -> bool:
        """Choose one token for each row, and add replies where its turn ends; False where every row is over."""
        time = self.column - self.start  # index in each row's own text; negative within its prompt
        logits = self.logits.masked_fill((time == 0)[:, None] & self.forbidden, -torch.inf)
        self._reserve(int(time.max()) + 1)
        place = time.clamp(min=0)
        given = self.given[self.row, place].where(time >= 0, self.text[:, min(self.column, self.text.shape[1] - 1)])
        draw = None
        if self.uniform is not None:
            draw = self.uniform[self.count[self.row].clamp(max=len(self.uniform) - 1), self.number[self.row]]
        token, said = choose(logits, self.rule, draw)
        self.token = torch.where(given < 0, token, given)
        after, own = (time >= 0) & ~self.finished, (given < 0) & ~self.finished
        self.said[self.row[after], place[after]] = self.token[after]
        self.acted[self.row[own], place[own]] = True
        self.log_prob[self.row[own], place[own]] = said[own]
        self.count[self.row[own]] += 1
        self._answer(torch.stack((self.row, self.token, place + 1))[:, own].T.tolist())
        self.column += 1
        return self._drop()

    def _answer(self, written: list[list[int]]) -> None:
        found = self.turns.look([(row, token, length) for row, token, length in written])
        length = {row: size for row, _, size in written}
        for row, answer in found.items():
            at = length[row]
            self.ends[row, at - 1] = True
            if answer is None:
                self.finished |= self.row == row
            elif answer:
                self._reserve(at + len(answer))
                self.given[row, at : at + len(answer)] = torch.tensor(answer, device=self.given.device)

    def _reserve(self, columns: int) -> None:
        """Make room for so many columns."""
        if (missing := columns - self.said.shape[1]) <= 0:
            return
        more = max(missing, self.said.shape[1])
        self.given = F.pad(self.given, (0, more), value=-1)
        self.said, self.log_prob, self.acted, self.ends = (
            F.pad(x, (0, more)) for x in (self.said, self.log_prob, self.acted, self.ends)
        )
