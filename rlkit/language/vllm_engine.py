"""vLLM as an engine: it receives weights through a folder, and receives and returns token ids."""

import os
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor

from rlkit import disk, ranks
from rlkit.attributes import Derived
from rlkit.errors import EngineFailed, UserError, one_line
from rlkit.language import asked, folders, threads
from rlkit.language.asked import Backend, Request, Written
from rlkit.language.causal import Causal
from rlkit.language.generate import Completions, Prompts, Rule
from rlkit.language.source import fingerprint
from rlkit.language.tokenizer import Tokenizer
from rlkit.language.turns import Spans, Talk, Turns, spans
from rlkit.seeding import derive

PROBE = "Once upon a time, 2 + 2 was"  # a text that vLLM continues to check that it serves the learner's model
TOKENS = 16  # number of tokens of the check
NEAR = 0.5  # largest mean difference of log-probabilities from the learner's, in nats


class VLLM(Derived):
    """Writes with vLLM, in this process or behind an address; its sums and its rounding differ from the learner's.

    exchange: a folder for weights that both sides can access; None: a temporary folder on this machine.

    The seed of each row depends only on the generator's state, the index of the row and of its turn. So a row is
    repeatable as far as vLLM is: its sums depend on the rows that share a batch. The index is among the rows of all
    ranks: each rank requests its own rows. The first rank sends the weights.
    """

    exact = False

    def __init__(self, backend: Backend, tokenizer: Tokenizer, exchange: Path | None = None) -> None:
        self.backend, self.tokenizer, self.exchange = backend, tokenizer, exchange
        self.note = f"{backend.name}; its sums depend on what it computes at once, so a resumed run may write otherwise"
        self.label, self.device, self.vocab = "", torch.device("cpu"), 0  # of the weights of the last `sync`
        self.checked, self.iterations = False, 0
        self.pending: Future[list[Written]] | None = None  # the completions that are being written

    @torch.no_grad()
    def sync(self, decoder: Causal) -> None:
        """Hand over the weights, with adapters merged, unless vLLM already has them. All ranks do this together."""
        if ranks.size() > 1 and not ranks.divide():  # inside a rank's own part: all ranks synchronized before
            return
        if self.pending is not None:
            wait([self.pending])  # the pending completions use the current weights to the end
        self.device, self.vocab = decoder.head.device, decoder.vocab
        found = ranks.together(lambda: self._labels(decoder))  # now no rank has pending completions
        self.label = found[0][0]
        if any(loaded != self.label for _, loaded in found[: len(found) if self.backend.per_rank else 1]):
            with self._folder(decoder) as folder:
                ranks.together(lambda: self._load(folder))
        if not self.checked:
            self._check_model(decoder)
            self.checked = True

    def _labels(self, decoder: Causal) -> tuple[str, str]:
        """The label of these weights, on the first rank, and that of this rank's vLLM.

        All ranks gather each sharded weight.
        """
        weights = (weight for _, weight in decoder.weights())
        try:
            return fingerprint(weights) if ranks.first() else "", self.backend.label() if self._has_own() else ""
        finally:
            deque(weights if ranks.layered() else (), maxlen=0)

    def _has_own(self) -> bool:
        """Whether this rank gives a vLLM its weights."""
        return self.backend.per_rank or ranks.first()

    def _load(self, folder: Path) -> None:
        if not self._has_own():
            return
        if not folder.is_dir():
            raise EngineFailed(
                f"rank {ranks.rank()} does not see {folder}, where rank 0 wrote the weights: give policy.exchange= "
                "a folder that all machines see"
            )
        self.backend.load(folder, self.label)

    def write(self, prompts: Prompts, max_tokens: int) -> Completions:
        """See `Engine.write`. For a greedy choice, log_prob is that of temperature 1."""
        return self.begin(prompts, max_tokens)()

    def begin(self, prompts: Prompts, max_tokens: int) -> Callable[[], Completions]:
        """See `WritesMeanwhile.begin`."""
        ids, key, rule = _repeated(prompts), _key(prompts), prompts.rule
        requests = [Request(x, max_tokens, rule, _seed(key, i)) for i, x in zip(_numbers(len(ids)), ids, strict=True)]
        self.pending = done = threads.begun(partial(self._ask, requests, prompts.rows), "rlkit-vllm-ahead")
        return lambda: self._completions(done.result())

    def _completions(self, found: list[Written]) -> Completions:
        length = torch.tensor([len(done.tokens) for done in found], device=self.device)
        cut = torch.tensor([not done.ended for done in found], device=self.device)
        tokens = _padded([done.tokens for done in found], torch.long, self.device)
        return Completions(tokens, _padded([done.log_prob for done in found], torch.float32, self.device), length, cut)

    def converse(self, prompts: Prompts, talk: Talk) -> Spans:
        """See `Engine.converse`. All rows write a turn, then all get replies: early rows wait for the others."""
        self._check_room(max(map(len, prompts.ids)) + talk.tokens)
        if self.backend.context is not None:  # replies may fill it
            talk = replace(talk, context=min(talk.context, self.backend.context))
        key, talking, turn = _key(prompts), _Talking(_repeated(prompts), prompts.rule, talk), 0
        while asked := talking.requests(key, turn):
            talking.hear(asked, self._ask(list(asked.values()), prompts.rows))
            turn += 1
        return talking.spans(self.device)

    def __deepcopy__(self, memo: dict[int, object]) -> "VLLM":
        """A copy of a policy uses the same vLLM, which gets the copy's weights when the copy writes."""
        return VLLM(self.backend, self.tokenizer, self.exchange)

    def _ask(self, requests: Sequence[Request], rows: int) -> list[Written]:
        """Completions with the weights of the last `sync`, and no others."""
        self._check_room(max(len(r.ids) + r.tokens for r in requests))
        found = asked.write(self.backend, requests, rows)
        if self.backend.label() != self.label:
            raise EngineFailed(f"{self.backend.name} was given other weights while it wrote: let one run alone use it")
        if not all(asked.fits(done, r, self.vocab) for done, r in zip(found, requests, strict=True)):
            raise EngineFailed(
                f"{self.backend.name} gave an impossible answer: unknown tokens, a row without its end, or a "
                "log-probability above 0; give a vLLM server of this model"
            )
        return found

    def _check_room(self, longest: int) -> None:
        """Refuse rows that may have more tokens than vLLM has room for."""
        context = self.backend.context
        if context is not None and longest > context:
            raise UserError(
                f"{self.backend.name} has room for {context} tokens, and rows may have {longest}: start it with "
                f"--max-model-len {longest}, or lower env.max_tokens"
            )

    @contextmanager
    def _folder(self, decoder: Causal) -> Iterator[Path]:
        """A folder with the weights. It gets its name once it is complete, and is removed after it was read.

        The first rank writes it. All ranks gather each sharded weight, so nothing else may fail between them.
        """
        place = self.exchange or Path(ranks.by_first(tempfile.gettempdir))
        own = place / ranks.by_first(lambda: f"rlkit-{secrets.token_hex(8)}")

        def make() -> None:
            with _writing(place):
                own.mkdir(mode=0o700 if self.exchange is None else 0o777, parents=True)

        def fill() -> None:
            if not (ranks.first() or ranks.layered()):
                return
            with _writing(place):
                folders.write(own / "new", decoder, self.tokenizer, decoder.dtype)
                if ranks.first():
                    disk.to_disk(own / "new" / "model.safetensors")
                    os.replace(own / "new", own / "weights")

        try:
            ranks.by_first(make)
            ranks.together(fill)
            yield own / "weights"
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def _check_model(self, decoder: Causal) -> None:
        """Refuse a model that is not the learner's, though its tokenizer and the names of its weights are the same."""
        prompt = self.tokenizer.encode([PROBE])[0][: decoder.context // 2]
        rule, start = Rule(1.0, False, self.tokenizer.stop_ids), len(prompt)
        requests = [Request(prompt, 1, rule, seed) for seed in range(TOKENS)]
        done = ranks.by_first(lambda: [(x.tokens[0], x.log_prob[0]) for x in self._ask(requests, TOKENS)])
        text = torch.tensor([prompt], device=self.device)
        mask = torch.zeros_like(text, dtype=torch.bool)
        mask[0, -1] = True
        hidden = decoder.read(text, mask, torch.tensor([start], device=self.device), mask, None)
        targets = torch.tensor([token for token, _ in done], device=self.device)
        known, _ = decoder.log_probs(hidden.expand(TOKENS, -1), targets, 1.0, False)
        off = (known.cpu() - torch.tensor([log_prob for _, log_prob in done])).abs().mean()
        if not off < NEAR:  # also True for NaN
            raise UserError(
                f"{self.backend.name} computes another model than policy.model: its log-probabilities are {off:.3g} "
                "nats off; serve the model of the run"
            )


class _Talking:
    """Conversations, each with the tokens after its prompt."""

    def __init__(self, prompts: list[list[int]], rule: Rule, talk: Talk) -> None:
        self.prompts, self.rule, self.talk = prompts, rule, talk
        self.numbers = _numbers(len(prompts))
        self.turns = Turns(list(range(len(prompts))), [len(prompt) for prompt in prompts], rule, talk)
        self.said: list[list[int]] = [[] for _ in prompts]
        self.acted: list[list[bool]] = [[] for _ in prompts]
        self.ends: list[list[bool]] = [[] for _ in prompts]
        self.log_prob: list[list[float]] = [[] for _ in prompts]
        self.open = list(range(len(prompts)))

    def requests(self, key: int | None, turn: int) -> dict[int, Request]:
        """A request for each row that is not over; forbidden tokens apply to the first token only."""
        rule = self.rule if turn == 0 else replace(self.rule, forbidden=())
        found = {}
        for row in self.open:
            written, length = len(self.turns.turn[row]), len(self.prompts[row]) + len(self.said[row])
            left = (self.talk.turn, self.talk.tokens - self.turns.spent[row])
            room = min(min(left) - written, self.talk.context - length)
            found[row] = Request(self.prompts[row] + self.said[row], room, rule, _seed(key, self.numbers[row], turn))
        return found

    def hear(self, requests: dict[int, Request], written: Sequence[Written]) -> None:
        """Record the written turns, and add the replies."""
        last = []
        for row, done in zip(requests, written, strict=True):
            done = asked.cut(done, self.rule, self.turns.turn[row])
            count = len(done.tokens)
            self._add(row, done.tokens, [True] * count, done.log_prob)
            self.turns.turn[row] += done.tokens[:-1]
            last.append((row, done.tokens[-1], len(self.said[row])))
        for row, answer in self.turns.look(last).items():
            self.ends[row][-1] = True
            if answer is None:
                self.open.remove(row)
            else:
                self._add(row, answer, [False] * len(answer), [0.0] * len(answer))

    def _add(self, row: int, tokens: list[int], acted: list[bool], log_prob: list[float]) -> None:
        self.said[row] += tokens
        self.acted[row] += acted
        self.ends[row] += [False] * len(tokens)
        self.log_prob[row] += log_prob

    def spans(self, device: torch.device) -> Spans:
        table = {
            "tokens": _padded(self.said, torch.long, device),
            "acted": _padded(self.acted, torch.bool, device),
            "ends": _padded(self.ends, torch.bool, device),
            "log_prob": _padded(self.log_prob, torch.float32, device),
        }
        return spans(table, self.turns)


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Within the block, report in one line that weights cannot be written to a place."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = disk.reason(error) if isinstance(error, OSError) else one_line(error)
        raise EngineFailed(
            f"cannot write weights to {place}: {why}; make room, or give another policy.exchange"
        ) from None


def _numbers(rows: int) -> list[int]:
    """The index of each row among those of all ranks."""
    return ranks.drawn(lambda shape: torch.arange(*shape), [rows]).tolist()


def _repeated(prompts: Prompts) -> list[list[int]]:
    """The prompt of each row."""
    return [list(ids) for ids in prompts.ids for _ in range(prompts.repeats)]


def _key(prompts: Prompts) -> int | None:
    """One draw, from which the seeds of a call are derived; None where the rule is greedy."""
    generator = prompts.generator
    if prompts.rule.greedy:
        return None
    if generator is None:
        raise ValueError("sampling needs a generator")
    return int(torch.randint(1 << 62, (1,), generator=generator, device=generator.device))


def _seed(key: int | None, row: int, turn: int = 0) -> int | None:
    return None if key is None else derive(key, row, turn)


def _padded(rows: Sequence[Sequence[float]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """[R, T], zeros after the end of each row."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=dtype, device=device)
