"""Texts in several turns: when a row ends a turn, it gets a reply, reads it, and writes on.

The cache stays. A reply is read token by token, in the same steps in which other rows write: nothing is read twice, and
no row waits for another. Text is never encoded again: a row is its ids, with a mask of those that it wrote.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from rlkit.language.decoder import Decoder
from rlkit.language.generate import BLOCK, Chunk, Prompts, Rule, Writing, choose, chunks
from rlkit.language.precision import wide

# Arguments: the indices of rows, and the turn that each just ended. Returns for each row the reply that it reads; None:
# the conversation is over; []: the row writes on, unless an end token stands there.
Respond = Callable[[list[int], list[list[int]]], Sequence[list[int] | None]]
Spans = dict[str, Tensor]


@dataclass(frozen=True)
class Talk:
    """The source of replies, and the limits of a row."""

    respond: Respond
    tokens: int  # most tokens that a row writes in all
    turn: int  # most tokens that a row writes in one turn
    context: int  # most tokens of a row, including the prompt


def converse(decoder: Decoder, prompts: Prompts, talk: Talk) -> Spans:
    """Conversations after each prompt.

    A turn ends with an end token, with the token that completes a stop string, or at a limit of tokens.
    One uniform number per row and written token is drawn from the generator at the start: the draws of a row depend
    neither on the rows in its batch nor on what others read or write.

    Returns what follows the prompts: tokens [R, T]; acted [R, T], False in replies; ends [R, T], True at the last token
    of a turn; log_prob [R, T], 0 in replies; length [R], up to the last token that the row wrote; later values are
    undefined; truncated [R], True where a limit of tokens or the context ended the conversation.
    """

    def run(chunk: Chunk, talk: Talk) -> Spans:
        with torch.inference_mode():
            talking = Talking(decoder, chunk, talk)
            talking.run()
            return talking.spans()

    return in_chunks(run, decoder.head.device, prompts, talk)


def in_chunks(run: Callable[[Chunk, Talk], Spans], device: torch.device, prompts: Prompts, talk: Talk) -> Spans:
    """Conversations by `run`, chunk by chunk; see `converse`."""
    parts = [(chunk.row, run(chunk, talk)) for chunk in chunks(prompts, talk.tokens, device)]
    return joined(parts, len(prompts.ids) * prompts.repeats)


def joined(parts: Sequence[tuple[Tensor, Spans]], total: int) -> Spans:
    """The rows of all chunks, ordered by their indices."""
    width, out = max(part["tokens"].shape[1] for _, part in parts), {}
    for name, like in parts[0][1].items():
        out[name] = like.new_zeros(total, *([width] if like.dim() == 2 else []))
        for row, part in parts:
            x = part[name]
            out[name][row] = F.pad(x, (0, width - x.shape[1])) if x.dim() == 2 else x
    return out


class Turns:
    """The turns of the rows of one chunk so far, and how each conversation ended."""

    def __init__(self, number: list[int], start: list[int], rule: Rule, talk: Talk) -> None:
        self.number, self.start, self.rule, self.talk = number, start, rule, talk
        self.turn: list[list[int]] = [[] for _ in start]  # the tokens of the current turn
        self.spent = [0] * len(start)  # number of tokens in earlier turns
        self.length, self.cut = [0] * len(start), [False] * len(start)

    def look(self, written: Sequence[tuple[int, int, int]]) -> dict[int, list[int] | None]:
        """Reply to the rows whose turn just ended. Returns: row → the tokens it reads next, None where it is over.

        written: for each row that wrote, its index in the chunk, the token, and the number of tokens after the prompt.
        """
        for row, token, _ in written:
            self.turn[row].append(token)
        ended = sorted((row, length) for row, length in self._ended(written))
        rows = [row for row, _ in ended]
        answers = (
            self.talk.respond([self.number[row] for row in rows], [self.turn[row] for row in rows]) if rows else []
        )
        found: dict[int, list[int] | None] = {}
        for (row, length), answer in zip(ended, answers, strict=True):
            self.spent[row] += len(self.turn[row])
            if not answer and self.turn[row][-1] in self.rule.stops:
                answer = None  # no text follows an end token, so the row cannot go on
            self.turn[row] = []
            room = self.talk.context - self.start[row] - length
            found[row] = answer
            if answer is None or self.spent[row] >= self.talk.tokens or len(answer) >= room:
                found[row], self.length[row], self.cut[row] = None, length, answer is not None
        return found

    def _ended(self, written: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
        """The rows whose turn ended with the last written token: index, and number of tokens after the prompt."""
        talk, stopping, open_ = self.talk, self.rule.stopping, []
        for row, token, length in written:
            size = len(self.turn[row])
            spent = size >= talk.turn or self.spent[row] + size >= talk.tokens
            if spent or token in self.rule.stops or self.start[row] + length >= talk.context:
                yield row, length
            elif stopping is not None and stopping.may_end(token):
                open_.append((row, length))
        if stopping is not None and open_:
            found = stopping.found([self.turn[row] for row, _ in open_])
            yield from (each for each, there in zip(open_, found, strict=True) if there)


class Talking(Writing):
    """The unfinished conversations of one chunk. Replies are in `given` before the steps that read them."""

    def __init__(self, decoder: Decoder, chunk: Chunk, talk: Talk):
        device, rows = chunk.row.device, len(chunk.row)
        columns = BLOCK.get(device.type, 32) + 1
        self.number = chunk.row  # index of each row among those of all chunks
        starts = [len(p) for p in chunk.prompts for _ in range(chunk.repeats)]
        self.turns = Turns(self.number.tolist(), starts, chunk.rule, talk)
        self.given = torch.full((columns, rows), -1, device=device)  # [T, R] tokens to read; -1: the row writes
        self.acted = torch.zeros(columns, rows, dtype=torch.bool, device=device)
        self.ends = torch.zeros_like(self.acted)
        self.count = torch.zeros(rows, dtype=torch.long, device=device)  # number of tokens that each row wrote
        tokens = torch.zeros(columns, rows, dtype=torch.long, device=device)
        log_prob = torch.zeros(columns, rows, device=device, dtype=wide(decoder.head.dtype))
        super().__init__(decoder, replace(chunk, row=torch.arange(rows, device=device)), tokens, log_prob)

    def spans(self) -> Spans:
        """The result of all rows."""
        table = {"tokens": self.tokens, "acted": self.acted, "ends": self.ends, "log_prob": self.log_prob}
        return spans({name: x.T for name, x in table.items()}, self.turns)

    def _write(self, logits: Tensor) -> None:
        given = self.given[self.time, self.row]
        own, count = given < 0, self.count[self.row]
        uniform = None
        if self.uniform is not None:  # rows that are over but not dropped yet write on; their output is ignored
            uniform = self.uniform[count.clamp(max=len(self.uniform) - 1), self.number[self.row]]
        token, log_prob = choose(logits, self.rule, uniform)
        token = torch.where(own, token, given)
        self.tokens[self.time, self.row] = token
        self.log_prob[self.time, self.row] = torch.where(own, log_prob, 0.0)
        self.acted[self.time, self.row] = own
        self.count[self.row] = count + own
        self.token.copy_(token)
        self.position += 1
        self.time += 1

    def _times(self) -> Iterable[int]:
        return itertools.count()

    def _look(self, time: int) -> bool:
        """Reply to the rows whose turn ended with the last written token, and make room for the replies."""
        state = torch.stack((self.row, self.token, self.acted[time, self.row], self.finished)).tolist()
        now = list(zip(*state, strict=True))
        found = self.turns.look([(row, token, time + 1) for row, token, own, over in now if own and not over])
        self._set(self.ends[time], list(found))
        self._set(self.finished, [place for place, (row, *_) in enumerate(now) if found.get(row, []) is None])
        reading = {row: answer for row, answer in found.items() if answer}
        grown = self._reserve(time + 2 + max(map(len, reading.values()), default=0))
        for row, answer in reading.items():
            self.given[time + 1 : time + 1 + len(answer), row] = torch.tensor(answer, device=self.given.device)
        return grown

    def _set(self, flags: Tensor, places: list[int]) -> None:
        flags.index_fill_(0, torch.tensor(places, dtype=torch.long, device=flags.device), True)

    def _reserve(self, columns: int) -> bool:
        """Make room for so many columns. Returns: whether memory was reallocated."""
        missing = columns - len(self.given)
        if missing <= 0:
            return False
        more = max(missing, len(self.given))
        self.given = F.pad(self.given, (0, 0, 0, more), value=-1)
        self.tokens, self.log_prob, self.acted, self.ends = (
            F.pad(x, (0, 0, 0, more)) for x in (self.tokens, self.log_prob, self.acted, self.ends)
        )
        return True


def spans(table: dict[str, Tensor], turns: Turns) -> Spans:
    """The result of the rows: [R, T] of each name, up to the longest row, with the lengths and the truncated rows."""
    device = table["tokens"].device
    ends = {"length": torch.tensor(turns.length, device=device), "truncated": torch.tensor(turns.cut, device=device)}
    return {name: x[:, : max(turns.length)] for name, x in table.items()} | ends
