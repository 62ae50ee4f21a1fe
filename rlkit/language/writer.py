"""A backbone with an engine: it completes prompts, and has conversations."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import memory, ranks
from rlkit.errors import Diverged, UserError
from rlkit.forecast import Footprint, Work
from rlkit.language.backbone import Backbone, layout, within
from rlkit.language.engine import Engine, WritesMeanwhile
from rlkit.language.generate import Completions, Prompts, Rule
from rlkit.language.stopping import Stopping
from rlkit.language.turns import Talk
from rlkit.prompts import Reply


class Writer(Backbone):
    """Writes with an engine; subclasses choose the engine and the temperature."""

    engine: Engine
    temperature: float
    staleness: int = 0  # largest age of a row when it is learned from, in versions of the weights

    def footprint(self, learned: Work, written: Sequence[Work]) -> Footprint | None:
        """The peak memory of learning and writing; an engine in another program counts as 0."""
        return super().footprint(learned, [] if isinstance(self.engine, WritesMeanwhile) else written)

    @property
    def note(self) -> str:
        old = "; rows are learned from one version later, and those under way are written anew by a run that goes on"
        return self.engine.note + (old if self.staleness else "")

    @property
    def iterations(self) -> int:
        """The number of iterations that began, as an engine that writes meanwhile counts them; else 0."""
        return self.engine.iterations if isinstance(self.engine, WritesMeanwhile) else 0

    def refresh(self) -> None:
        super().refresh()
        if isinstance(self.engine, WritesMeanwhile):
            self.engine.iterations += 1

    def ready(self) -> None:
        """Give the engine the current weights. If they are sharded, all ranks do this together."""
        self.engine.sync(self.decoder)

    def ready_before_parts(self) -> None:
        """From now on, call `ready` before ranks play their parts, if sharded weights or another program need it."""
        if self.sharded or isinstance(self.engine, WritesMeanwhile):
            ranks.before_parts(self.ready)

    def generate(
        self,
        prompts: Sequence[str],
        repeats: int = 1,
        max_tokens: int = 64,
        greedy: bool = False,
        forbid_first: Sequence[str] = (),
        generator: torch.Generator | None = None,
        stop: Sequence[str] = (),
    ) -> TensorDict:
        """`repeats` completions of each prompt, [P, G]: observation action log_prob mask [P, G, T], truncated [P, G].

        With x = prompt + completion (including the stop token), observation = x[:-1], action = x[1:], and mask is True
        where the action belongs to the completion. forbid_first: strings whose first token is not allowed as the first.
        stop: strings that end a completion, which includes the token that completes one of them.

        Raises: UserError for a prompt that is empty or too long; Diverged where a log-probability is not finite.
        """
        asked = self._asked(prompts, repeats, max_tokens, greedy, forbid_first, stop, generator)
        self.engine.sync(self.decoder)
        return self._laid_out(asked, self.engine.write(asked, max_tokens))

    def begin(
        self, prompts: Sequence[str], repeats: int = 1, max_tokens: int = 64, stop: Sequence[str] = ()
    ) -> Callable[[], TensorDict]:
        """Begin the work of `generate` with the current weights; calling the result waits for it.

        Raises: UserError as `generate` does; later errors are raised by the result.
        """
        if not isinstance(self.engine, WritesMeanwhile):
            raise TypeError(f"a {type(self.engine).__name__} writes with the learner's own weights, and not meanwhile")
        asked = self._asked(prompts, repeats, max_tokens, False, (), stop)
        self.engine.sync(self.decoder)
        done = self.engine.begin(asked, max_tokens)
        return lambda: self._laid_out(asked, done())

    def _laid_out(self, asked: Prompts, done: Completions) -> TensorDict:
        out = layout(asked.ids, asked.repeats, done.tokens, done.length, self.tokenizer.pad_id)
        log_prob = done.log_prob.new_zeros(out["mask"].shape)
        log_prob[out["mask"]] = self._finite(done.log_prob[within(done.tokens, done.length)])
        size = (len(asked.ids), asked.repeats)
        out.update(log_prob=log_prob, truncated=done.truncated)
        return TensorDict({key: value.view(*size, *value.shape[1:]) for key, value in out.items()}, batch_size=size)

    def converse(
        self,
        prompts: Sequence[str],
        reply: Reply,
        repeats: int = 1,
        max_tokens: int = 64,
        turn_tokens: int | None = None,
        greedy: bool = False,
        forbid_first: Sequence[str] = (),
        generator: torch.Generator | None = None,
        stop: Sequence[str] = (),
    ) -> TensorDict:
        """`repeats` conversations after each prompt: the keys of `generate`, and turn_end [P, G, T].

        The row writes a turn, up to an end token, a stop string or `turn_tokens` tokens, and `reply` returns the text
        after it. This repeats until `reply` returns None, `max_tokens` tokens are written in all, or the context is
        full (the last two: truncated). mask is False in replies; a reply's text is encoded once, and a prompt is never
        encoded again. turn_end is True at the last token of each turn.

        Raises: see `generate`.
        """
        asked = self._asked(prompts, repeats, max_tokens, greedy, forbid_first, stop, generator)
        self.engine.sync(self.decoder)
        respond = partial(self._respond, reply, asked.rule.stops)
        talk = Talk(respond, max_tokens, turn_tokens or max_tokens, self.decoder.context)
        done = self.engine.converse(asked, talk)
        out = layout(asked.ids, repeats, done["tokens"], done["length"], self.tokenizer.pad_id)
        there, inside = out["mask"], within(done["tokens"], done["length"])
        for key, name in (("mask", "acted"), ("turn_end", "ends"), ("log_prob", "log_prob")):
            out[key] = torch.zeros(there.shape, dtype=done[name].dtype, device=there.device)
            out[key][there] = done[name][inside]
        self._finite(out["log_prob"])
        size = (len(asked.ids), repeats)
        out["truncated"] = done["truncated"]
        return TensorDict({key: value.view(*size, *value.shape[1:]) for key, value in out.items()}, batch_size=size)

    def _respond(
        self, reply: Reply, stops: Collection[int], rows: list[int], turns: list[list[int]]
    ) -> list[list[int] | None]:
        """The tokens of the replies. An end token, one of `stops`, that the row wrote itself is not repeated."""
        replies = reply(rows, self.tokenizer.decode(turns))
        ids = iter(self.tokenizer.encode_after([text for text in replies if text is not None]))
        found = [None if text is None else next(ids) for text in replies]
        for i, (turn, after) in enumerate(zip(turns, found, strict=True)):
            if after and turn[-1] in stops:
                found[i] = self._beyond(turn, after)
        return found

    def _beyond(self, turn: list[int], reply: list[int]) -> list[int]:
        """The tokens after the end token of a turn, if the reply begins with it: behind a space as Llama 2's, or behind
        a mark that the turn has, too, as Command R7B's."""
        if turn[-1] not in reply:
            return reply
        at = reply.index(turn[-1])
        marked = turn[-at - 1 :] == reply[: at + 1]
        begins = marked or not self.tokenizer.decode([reply[:at]], special=True)[0].strip()
        return reply[at + 1 :] if begins else reply

    def _asked(
        self,
        prompts: Sequence[str],
        repeats: int,
        max_tokens: int,
        greedy: bool,
        forbid_first: Sequence[str],
        stop: Sequence[str],
        generator: torch.Generator | None = None,
    ) -> Prompts:
        """The ids of the prompts, and how they are continued."""
        ids = self.prompt_ids(prompts)
        longest, context = max(map(len, ids)), self.decoder.context
        if longest + max_tokens > context:
            raise UserError(
                f"a prompt of {longest} tokens and {max_tokens} more exceed the model's context of {context}: "
                "lower max_tokens or shorten the prompt"
            )
        many = f"{len(ids) * repeats:,} completions of {max_tokens} tokens"
        # A token, its log-probability and its draw; keys and values are not included.
        memory.check(16 * len(ids) * repeats * max_tokens, many, "ask for fewer, or lower max_tokens")
        spelled = [*self.tokenizer.encode(forbid_first), *self.tokenizer.encode_after(forbid_first)]
        forbidden = tuple({row[0] for row in spelled if row})
        rule = Rule(self.temperature, greedy, self.tokenizer.stops(stop), forbidden, self.stopping(stop))
        return Prompts(ids, repeats, rule, generator or self.generator, self.rows)

    def stopping(self, stop: Sequence[str]) -> Stopping | None:
        """The search for stop strings in completions; stop strings that are a single special token are not text."""
        texts = [text for text in stop if self.tokenizer.stop_token(text) is None]
        return Stopping(texts, self.tokenizer.decode) if texts else None

    def _finite(self, log_prob: Tensor) -> Tensor:
        if not log_prob.isfinite().all():
            raise Diverged(
                f"not finite: log_prob of what {self.name} writes; checkpoints written before are kept; try a smaller "
                f"algo.lr, or a policy.temperature nearer to 1 than {self.temperature:g}"
            )
        return log_prob
