"""Tools that a model calls while it writes, in GSM8K's own notation: it writes `<<48/2=`, the tool writes `24>>`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import Plays, Writes
from rlkit.errors import UserError
from rlkit.prompts import cut, data
from rlkit.terminal import warn
from rlkit.text.ahead import refuse_ahead
from rlkit.text.calculator import NoResult, calculate
from rlkit.text.turns import OneTurn, conversing, note
from rlkit.worker import Failed, Worker

OPEN, CALL, CLOSE = "<<", "=", ">>"
NOTHING = "?"  # in place of a result: what was asked for could not be had
RESULT = 200  # characters of a result that stand in a row

Tool = Callable[[str], str]  # what stands between << and = → its result


def load_tool(name: str, seconds: float) -> "Calls":
    """`calculator`, ./mine.py:function, or package.module:function; these run in a process of their own."""
    if name == "calculator":
        return Calls(name, calculate)
    return Calls(name, Worker("env.tool", name, seconds, "calculator, "))


class Calls(OneTurn):
    """Answers calls of a tool; what fails reads `?>>` in the row, and each kind of failure is reported once."""

    def __init__(self, name: str, tool: Tool) -> None:
        self.name, self.tool = name, tool
        self.told: set[str] = set()

    def longest(self, max_tokens: int) -> int:
        """Tokens of a row in which the policy writes so many: a result is about as long as its call at most."""
        return 2 * max_tokens

    def check(self, policy: Plays, stop: Sequence[str]) -> None:
        """Refuse a policy that takes no turns, and stop strings that would be torn by a call."""
        conversing(policy)
        refuse_ahead(policy, "conversations with a tool")
        for text in stop:
            if CALL in text[:-1]:
                raise UserError(
                    f"env.stop={text!r} with env.tool: a turn ends at '{CALL}', so write one that ends there"
                )

    def write(
        self, policy: Writes, prompts: Sequence[str], stop: Sequence[str], repeats: int = 1, **how: Any
    ) -> tuple[TensorDict, list[str]]:
        """`repeats` completions of each prompt, as `Writes.generate` gives them and as texts up to a stop string.

        What the tool wrote has mask False. rollout/tool_calls and rollout/tool_errors [P, G] count for each row.
        """
        calling = Calling(self, stop, len(prompts) * repeats)
        batch = conversing(policy).converse(prompts, calling, repeats, stop=(*stop, CALL), **how)
        del batch["turn_end"]
        note(batch, tool_calls=calling.made, tool_errors=calling.failed)
        return batch, self.noted(policy, batch, stop)

    def ends(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[tuple[str, int]]:
        """Each text with what the tool wrote, and where a stop string ends it that the policy wrote."""
        last = TensorDict({"action": batch["action"], "mask": last_turn(batch["mask"])}, batch.batch_size)
        both = zip(conversing(policy).transcript(batch), policy.decode(last), strict=True)
        return [(text, len(text) - len(turn) + len(cut(turn, stop))) for text, turn in both]

    def result(self, asked: str) -> tuple[str, bool]:
        """What the tool writes, and whether it failed."""
        try:
            return self.tool(asked)[:RESULT] + CLOSE, False
        except NoResult:  # the model's mistake, not the tool's
            return NOTHING + CLOSE, True
        except Failed as error:
            if str(error) not in self.told and len(self.told) < 10:
                self.told.add(str(error))
                warn(f"env.tool={self.name}: {error}; the model reads {NOTHING}{CLOSE}")
            return NOTHING + CLOSE, True


class Calling:
    """Answers the rows of one rollout, and counts."""

    def __init__(self, calls: Calls, stop: Sequence[str], rows: int) -> None:
        self.calls, self.stop = calls, stop
        self.made, self.failed = [0] * rows, [0] * rows

    def __call__(self, rows: Sequence[int], texts: Sequence[str]) -> list[str | None]:
        """The result where `=` was written inside of an open `<<`; None behind a stop string; nothing elsewhere."""
        return [self._answer(row, text) for row, text in zip(rows, texts, strict=True)]

    def _answer(self, row: int, text: str) -> str | None:
        if cut(text, self.stop) != text:
            return None
        asked = asked_for(text)
        if asked is None:  # a text that its end token ended is over; one that its tokens ended is truncated
            return ""
        written, failed = self.calls.result(asked)
        self.made[row] += 1
        self.failed[row] += failed
        return data(written)


def last_turn(mask: Tensor) -> Tensor:
    """Of what each row wrote, what stands behind the last answer that it read. mask: [..., T], as the result."""
    steps = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    last = (mask * steps).amax(-1, keepdim=True)
    answered = (~mask * steps * (steps < last)).amax(-1, keepdim=True)
    return mask & (steps > answered)


def asked_for(text: str) -> str | None:
    """What is asked for by a text that ends in `<<...=`; None where it ends otherwise."""
    before, call, after = text.partition(CALL)
    _, opened, asked = before.rpartition(OPEN)
    return asked if call and opened and not after and CLOSE not in asked else None
