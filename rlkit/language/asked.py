"""Requests to an engine outside of this program: one completion per request, in token ids."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from rlkit.errors import UserError
from rlkit.language.generate import Rule
from rlkit.seeding import derive

OLDEST = (0, 32)  # version of vLLM this was tested with; older ones lack routes
MODE = "processed_logprobs"  # log-probabilities after the temperature is applied
NOTHING = -9999.0  # vLLM's substitute for a log-probability that is not finite
ROUNDED = 1e-3  # a log-probability may exceed 0 by this much because of rounding
NEVER = -100.0  # logit bias of a forbidden token: its probability is multiplied by e^-100


@dataclass(frozen=True)
class Request:
    """Write at most `tokens` tokens after `ids`. The same seed gives the same draws; a greedy rule needs no seed."""

    ids: list[int]
    tokens: int
    rule: Rule
    seed: int | None = None
    forbidden: tuple[int, ...] = ()  # tokens that are never written

    def parameters(self) -> dict[str, object]:
        """The parameters under vLLM's names. All are given, so that no default of a server applies."""
        rule = self.rule
        texts = [] if rule.stopping is None else list(rule.stopping.texts)
        return {
            "temperature": 0.0 if rule.greedy else rule.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "max_tokens": self.tokens,
            "seed": self.seed,
            "ignore_eos": True,  # the rule gives the end tokens, not the served folder
            "stop_token_ids": list(rule.stops),
            "stop": texts,
            "logprobs": 0,  # only of the chosen token
            "logit_bias": dict.fromkeys(self.forbidden, NEVER) or None,
        }


@dataclass(frozen=True)
class Written:
    """The result of a request."""

    tokens: list[int]  # at least one; includes the end token
    log_prob: list[float]  # of each token, at the sampling temperature; for a greedy choice at temperature 1
    ended: bool  # True: by an end token or a stop string; False: by the limit of tokens


class Backend(Protocol):
    """A vLLM engine, in this process or behind an address."""

    name: str  # for the first screen of a run and for messages
    context: int | None  # most tokens of a row, where it is known
    per_rank: bool  # True: each rank has its own; False: all ranks share that of the first

    def label(self) -> str:
        """The label that was given to `load` with the current weights; any other number before the first `load`."""
        ...

    def load(self, folder: Path, label: str) -> None:
        """Load the weights of a folder and discard caches of older ones; the folder exists until this returns."""
        ...

    def write(self, requests: Sequence[Request], at_once: int) -> list[Written]:
        """One completion for each request, in the same order."""
        ...


def finite(log_prob: float) -> float:
    """A log-probability from vLLM; vLLM's substitute for non-finite numbers becomes -inf, which the caller refuses."""
    return float(log_prob) if log_prob > NOTHING else float("-inf")


def check_version(said: str, whose: str) -> None:
    """Refuse a version of vLLM that lacks required features."""
    found = re.match(r"(\d+)\.(\d+)", said)
    if found is None or tuple(int(part) for part in found.groups()) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UserError(f"{whose} is vLLM {said[:20]}, and rlkit needs {oldest} or a later one: install that")


def write(backend: Backend, requests: Sequence[Request], at_once: int) -> list[Written]:
    """One completion for each request. Where a rule forbids first tokens, the first token is a request of its own.

    Text after the first end token or stop string is cut off, if the engine wrote any.
    """
    if not requests or not requests[0].rule.forbidden:
        return [cut(done, r.rule) for done, r in zip(backend.write(requests, at_once), requests, strict=True)]
    first = backend.write([replace(r, tokens=1, forbidden=r.rule.forbidden) for r in requests], at_once)
    open_ = [i for i, done in enumerate(first) if not done.ended and requests[i].tokens > 1]
    rest = backend.write([_after(requests[i], first[i]) for i in open_], at_once)
    for i, done in zip(open_, rest, strict=True):
        first[i] = Written(first[i].tokens + done.tokens, first[i].log_prob + done.log_prob, done.ended)
    return [cut(done, r.rule) for done, r in zip(first, requests, strict=True)]


def _after(request: Request, done: Written) -> Request:
    """The request for the tokens after the first one; its seed differs from that of the first."""
    seed = None if request.seed is None else derive(request.seed, "rest")
    return replace(request, ids=request.ids + done.tokens, tokens=request.tokens - 1, seed=seed)


def cut(done: Written, rule: Rule, before: Sequence[int] = ()) -> Written:
    """The row up to its first end token or the token that completes a stop string.

    before: the tokens of the same turn that earlier requests wrote; a stop string may begin in them.
    """
    ends = [i for i, token in enumerate(done.tokens, 1) if token in rule.stops][:1]
    if rule.stopping is not None:
        found = rule.stopping.lengths([[*before, *(done.tokens[: ends[0]] if ends else done.tokens)]])[0]
        ends = ends if found is None else [max(1, found - len(before))]
    if not ends:
        return done
    return Written(done.tokens[: ends[0]], done.log_prob[: ends[0]], True)


def fits(done: Written, request: Request, vocab: int) -> bool:
    """Whether a row is valid: its tokens are in the vocabulary, and it has an end or the requested number of tokens."""
    rule, count = request.rule, len(done.tokens)
    ended = done.tokens[-1] in rule.stops or rule.stopping is not None if done.ended else count == request.tokens
    return ended and max(done.tokens) < vocab and not any(x > ROUNDED for x in done.log_prob)
