"""Sampling of completions: one prefill per distinct prompt, a static cache, finished rows dropped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlkit import ranks
from rlkit.language.cache import Cache, Stored, close_gaps
from rlkit.language.decoder import Decoder
from rlkit.language.precision import operand, wide
from rlkit.language.stopping import EVERY, Stopping
from rlkit.waiting import advance

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool  # torch has no public name for this type

BLOCK = {"cpu": 32, "cuda": 256}  # number of columns by which the cache grows


@dataclass(frozen=True)
class Rule:
    """How the next token is chosen, and what ends a completion."""

    temperature: float
    greedy: bool
    stops: tuple[int, ...]
    forbidden: tuple[int, ...] = ()  # not allowed as the first token
    stopping: Stopping | None = None  # strings that end a completion


@dataclass(frozen=True)
class Prompts:
    """What an engine continues: the draws depend only on these fields and on the state of the generator."""

    ids: Sequence[Sequence[int]]
    repeats: int  # attempts from each prompt, prompt-major
    rule: Rule
    generator: torch.Generator | None = None  # a greedy rule needs none
    rows: int = 256  # about so many are written at the same time, at most


@dataclass
class Completions:
    """The completions of all prompts; rows are prompt-major, attempt-minor."""

    tokens: Tensor  # [R, T]; undefined past `length`
    log_prob: Tensor  # [R, T] float32, or float64 if the network is
    length: Tensor  # [R], including the stop token or the token that completes a stop string
    truncated: Tensor  # [R] bool: the limit of tokens was reached first


@dataclass(frozen=True)
class Chunk:
    """Prompts that are continued together."""

    prompts: list[Sequence[int]]  # sorted by length
    repeats: int
    rule: Rule
    row: Tensor  # [R], the index of each row among those of all chunks
    uniform: Tensor | None  # [T, R'], a uniform number by step and row of all chunks; None: the rule is greedy


def generate(decoder: Decoder, prompts: Prompts, max_tokens: int) -> Completions:
    """Completions of at most `max_tokens` tokens."""

    def run(chunk: Chunk, tokens: Tensor, log_prob: Tensor) -> None:
        with torch.inference_mode():
            Writing(decoder, chunk, tokens, log_prob).run()

    return sample(run, decoder.head, prompts, max_tokens)


def sample(
    run: Callable[[Chunk, Tensor, Tensor], None], head: Tensor, prompts: Prompts, max_tokens: int
) -> Completions:
    """Completions by `run`, which fills in tokens and log-probabilities [T, R] chunk by chunk.

    One uniform number per row and step is drawn from the generator at the start. So the draws of a row depend neither
    on the rows in its batch nor on when those finish.
    """
    total, device = len(prompts.ids) * prompts.repeats, head.device
    tokens = torch.zeros(max_tokens, total, dtype=torch.long, device=device)
    log_prob = torch.zeros(max_tokens, total, device=device, dtype=wide(head.dtype))
    for chunk in chunks(prompts, max_tokens, device):
        run(chunk, tokens, log_prob)
    return _measure(tokens.T, log_prob.T, prompts.rule)


def draws(prompts: Prompts, steps: int, device: torch.device) -> Tensor | None:
    """One uniform number per step and row, [T, R]; None where the rule is greedy."""
    generator = prompts.generator
    if prompts.rule.greedy:
        return None
    if generator is None:
        raise ValueError("sampling needs a generator")

    def draw(shape: Sequence[int]) -> Tensor:
        return torch.rand(shape, generator=generator, device=generator.device)

    return ranks.drawn(draw, (steps, len(prompts.ids) * prompts.repeats), 1).to(device)


def chunks(prompts: Prompts, steps: int, device: torch.device) -> Iterator[Chunk]:
    """Prompts of similar length, at most about `rows` rows at a time; a row writes at most so many tokens."""
    ids, repeats, uniform = prompts.ids, prompts.repeats, draws(prompts, steps, device)
    by_length = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    size, written = max(1, prompts.rows // repeats), 0
    for chunk in (by_length[start : start + size] for start in range(0, len(by_length), size)):
        row = torch.tensor(chunk, device=device).repeat_interleave(repeats) * repeats
        row += torch.arange(repeats, device=device).repeat(len(chunk))
        yield Chunk([ids[i] for i in chunk], repeats, prompts.rule, row, uniform)
        written += len(chunk)
        advance(written, len(ids))


def _measure(tokens: Tensor, log_prob: Tensor, rule: Rule) -> Completions:
    """Find the end of each row: its first stop. Tokens that a finished row wrote after it are cut off."""
    stopped = torch.isin(tokens, torch.tensor(rule.stops, device=tokens.device))
    truncated = ~stopped.any(-1)
    length = stopped.int().argmax(-1).add(1).where(~truncated, tokens.shape[1])
    if rule.stopping is not None:
        rows = [row[:end] for row, end in zip(tokens.tolist(), length.tolist(), strict=True)]
        ends = rule.stopping.lengths(rows)
        cut = torch.tensor([end is not None for end in ends], device=tokens.device)
        length = torch.tensor([end or 0 for end in ends], device=tokens.device).where(cut, length)
        truncated &= ~cut
    longest = int(length.max())
    return Completions(tokens[:, :longest], log_prob[:, :longest], length, truncated)


def choose(logits: Tensor, rule: Rule, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """One token per row and its log softmax(logits / temperature); logits [R, V] float32, uniform [R] in [0, 1).

    Inverse CDF: the first token whose cumulative probability exceeds u. uniform=None: the most likely token.
    """
    logits = logits if rule.temperature == 1 else logits / rule.temperature
    if uniform is None:
        top, token = logits.max(-1, keepdim=True)
        total = (logits - top).exp_().sum(-1, keepdim=True)
    else:
        top = logits.amax(-1, keepdim=True)
        # In float64: on a GPU, a cumulative sum of 150,000 float32 numbers is not monotonic (PyTorch issue 13867), and
        # a token of almost no probability, or a forbidden one, could be the first above u.
        mass = (logits - top).exp_().cumsum(-1, dtype=torch.float64)
        total = mass[:, -1:]
        # Rounding may lift u·total to the total, which no token exceeds. If the total is NaN, no token exceeds u:
        # the last token is taken, its log-probability is not finite, and the caller refuses it.
        drawn = torch.minimum(uniform[:, None] * total, total.nextafter(torch.zeros_like(total)))
        token = torch.searchsorted(mass, drawn, right=True).clamp_(max=logits.shape[-1] - 1)
    log_prob = logits.gather(1, token) - top - total.log().to(logits.dtype)
    return token[:, 0], log_prob[:, 0]


class Writing:
    """The unfinished rows of one chunk. Every step works in place, so that it can be a CUDA graph."""

    def __init__(self, decoder: Decoder, chunk: Chunk, tokens: Tensor, log_prob: Tensor):
        prompts, repeats, rule, row = chunk.prompts, chunk.repeats, chunk.rule, chunk.row
        self.decoder, self.rule, self.uniform = decoder, rule, chunk.uniform
        self.head = operand(decoder.head, decoder.dtype)
        self.row = row.clone()  # a clone, as rows are moved in place, and its neighbors were made in inference mode
        self.tokens, self.log_prob = tokens, log_prob  # [T, R]: shared by all chunks; each row writes its own column
        device = row.device
        self.time = torch.zeros(1, dtype=torch.long, device=device)
        self.stops = torch.tensor(rule.stops, device=device)
        self.finished = torch.zeros(len(row), dtype=torch.bool, device=device)
        self.token = torch.zeros_like(row)
        length = torch.tensor([len(p) for p in prompts], device=device)
        self.position = length.repeat_interleave(repeats) - 1  # position of the last written token
        logits = self._prefill(prompts, length, repeats)
        if rule.forbidden:
            logits[:, list(rule.forbidden)] = -torch.inf
        self._write(logits.repeat_interleave(repeats, 0))

    def _prefill(self, prompts: list[Sequence[int]], length: Tensor, repeats: int) -> Tensor:
        """Read each prompt once. Returns: the logits [P, V] of the first tokens."""
        width = max(map(len, prompts))
        padded = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts], device=length.device)
        stored: Stored = []
        hidden = self.decoder(padded, keep=stored)
        block = min(BLOCK.get(length.device.type, 32), max(1, len(self.tokens) - 1))
        self.cache = Cache(stored, length, repeats, block)
        return self.decoder.logits(hidden[torch.arange(len(prompts), device=length.device), length - 1], self.head)

    def _write(self, logits: Tensor) -> None:
        uniform = None if self.uniform is None else self.uniform[self.time, self.row]
        token, log_prob = choose(logits, self.rule, uniform)
        self.tokens[self.time, self.row] = token
        self.log_prob[self.time, self.row] = log_prob
        self.token.copy_(token)
        self.finished |= (token[:, None] == self.stops).any(-1)
        self.position += 1
        self.time += 1

    def _step(self) -> None:
        self.cache.advance()
        hidden = self.decoder(self.token[:, None], self.position[:, None], self.cache)
        self._write(self.decoder.logits(hidden[:, 0], self.head))

    def run(self) -> None:
        """Step until every row has stopped or reached the limit of tokens."""
        pool = torch.cuda.graph_pool_handle() if self.row.is_cuda else None  # None: no graphs
        step = self._step
        for time in self._times():
            full = time > 0 and time % self.cache.block == 0
            if full:
                self.cache.grow()
            changed = self._look(time)
            changed |= self._drop() if pool is None else time % EVERY == 0 and self._halve()
            if not len(self.row):
                return
            if pool is not None and (full or changed):
                step = self._step  # the shapes changed: run one step directly, then record a new graph
            elif pool is not None and step == self._step and time > 0:
                step = _capture(self._step, pool)
            step()

    def _times(self) -> Iterable[int]:
        """The indices of the steps."""
        return range(self.tokens.shape[0] - 1)

    def _look(self, time: int) -> bool:
        """Now and then, finish rows whose text contains a stop string. Returns: whether memory was reallocated."""
        stopping = self.rule.stopping
        if stopping is not None and time % EVERY == 0:
            alive = (~self.finished).nonzero()[:, 0]
            rows = self.tokens[: time + 1, self.row[alive]].T.tolist()
            self.finished[alive] = torch.tensor(stopping.lately(rows), dtype=torch.bool, device=alive.device)
        return False

    def _drop(self) -> bool:
        """Drop finished rows once they are a tenth of all."""
        alive = ~self.finished
        count = int(alive.sum())
        return count <= 0.9 * len(alive) and self._keep(alive)

    def _halve(self) -> bool:
        """Drop finished rows down to a power of two, so that few shapes are recorded as graphs."""
        alive = ~self.finished
        count = int(alive.sum())
        size = 1 << (count - 1).bit_length() if count else 0
        if size >= len(alive):
            return False
        alive[self.finished.nonzero()[: size - count, 0]] = True  # they fill up the shape; their output is ignored
        return self._keep(alive)

    def _keep(self, alive: Tensor) -> bool:
        self.cache.drop(alive)
        state = [self.row, self.token, self.position, self.finished]
        self.row, self.token, self.position, self.finished = close_gaps(state, alive)
        return True


def _capture(step: Callable[[], None], pool: "Pool") -> Callable[[], None]:
    """Record one step as a CUDA graph, in the memory pool of the earlier graphs.

    Recording does not execute the step. The state is in the caches, which the step changes in place.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    return graph.replay
