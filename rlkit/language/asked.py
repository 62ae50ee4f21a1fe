"""What is asked of an engine that is not part of this program: one completion a request, in token ids."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from rlkit.errors import UserError
from rlkit.language.generate import Rule
from rlkit.seeding import derive

OLDEST = (0, 32)  # of vLLM: what this was tried with; older ones lack routes
MODE = "processed_logprobs"  # the log-probabilities that count the temperature
NOTHING = -9999.0  # what vLLM says in place of a log-probability that is not a finite number
ROUNDED = 1e-3  # above 0, to which rounding may bring a log-probability
NEVER = -100.0  # added to the logit of a token that must not come: e^-100 of what it would have been


@dataclass(frozen=True)
class Request:
    """At most `tokens` tokens after `ids`; the same seed draws the same numbers. A rule that is greedy needs none."""

    ids: list[int]
    tokens: int
    rule: Rule
    seed: int | None = None
    forbidden: tuple[int, ...] = ()  # tokens that must not come

    def parameters(self) -> dict[str, object]:
        """As vLLM names them. Nothing is left to the defaults of a server."""
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
            "ignore_eos": True,  # the end tokens are those of the rule, not of the folder that is served
            "stop_token_ids": list(rule.stops),
            "stop": texts,
            "logprobs": 0,  # of the chosen token alone
            "logit_bias": dict.fromkeys(self.forbidden, NEVER) or None,
        }


@dataclass(frozen=True)
class Written:
    """What came of a request."""

    tokens: list[int]  # at least one; the end token included
    log_prob: list[float]  # of each, at the temperature that it was drawn at; of a greedy choice at 1
    ended: bool  # by an end token or a stop string, not by the number of tokens


class Backend(Protocol):
    """A vLLM, in this process or behind an address."""

    name: str  # for the first screen of a run, and for messages
    context: int | None  # tokens of the longest row, as far as it is known

    def label(self) -> str:
        """The version of its weights that `load` was given; any other number where nothing was loaded yet."""
        ...

    def load(self, folder: Path, label: str) -> None:
        """Take the weights of a folder that stays until this returns, and forget what older ones computed."""
        ...

    def write(self, requests: Sequence[Request], at_once: int) -> list[Written]:
        """A completion of each, in their order."""
        ...


def finite(log_prob: float) -> float:
    """A log-probability as vLLM tells it: what is none becomes -inf, which who reads it refuses."""
    return float(log_prob) if log_prob > NOTHING else float("-inf")


def check_version(said: str, whose: str) -> None:
    """Refuse a vLLM that lacks what is asked of it."""
    found = re.match(r"(\d+)\.(\d+)", said)
    if found is None or tuple(int(part) for part in found.groups()) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UserError(f"{whose} is vLLM {said[:20]}, and rlkit needs {oldest} or a later one: install that")


def write(backend: Backend, requests: Sequence[Request], at_once: int) -> list[Written]:
    """A completion of each; where a rule forbids first tokens, that token is asked for alone.

    Where an end token or a stop string stands earlier than the engine saw, the rest is cut off.
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
    """What is asked for after the first token, with other draws than that had."""
    seed = None if request.seed is None else derive(request.seed, "rest")
    return replace(request, ids=request.ids + done.tokens, tokens=request.tokens - 1, seed=seed)


def cut(done: Written, rule: Rule) -> Written:
    """The row up to its first end token, or the token that completes a stop string."""
    ends = [i for i, token in enumerate(done.tokens, 1) if token in rule.stops][:1]
    if rule.stopping is not None:
        found = rule.stopping.lengths([done.tokens[: ends[0]] if ends else done.tokens])[0]
        ends = ends if found is None else [found]
    if not ends:
        return done
    return Written(done.tokens[: ends[0]], done.log_prob[: ends[0]], True)


def fits(done: Written, request: Request, vocab: int) -> bool:
    """Whether a row can be an answer: tokens of the vocabulary, up to an end or as many as were asked for."""
    rule, count = request.rule, len(done.tokens)
    ended = done.tokens[-1] in rule.stops or rule.stopping is not None if done.ended else count == request.tokens
    return ended and max(done.tokens) < vocab and not any(x > ROUNDED for x in done.log_prob)
