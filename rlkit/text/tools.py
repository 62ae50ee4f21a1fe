"""Tools that a model calls while it writes, in GSM8K's notation: the model writes `<<48/2=`, the tool writes `24>>`."""

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
NOTHING = "?"  # replaces the result of a failed call
RESULT = 200  # most characters of a result in a row

Tool = Callable[[str], str]  # the text between << and = → its result


def load_tool(name: str, seconds: float) -> "Calls":
    """Load `calculator`, ./mine.py:function, or package.module:function; the latter two run in a separate process."""
    if name == "calculator":
        return Calls(name, calculate)
    return Calls(name, Worker("env.tool", name, seconds, "calculator, "))


class Calls(OneTurn):
    """Answers calls of a tool. After a failed call the row reads `?>>`; each kind of failure is reported once."""

    def __init__(self, name: str, tool: Tool) -> None:
        self.name, self.tool = name, tool
        self.told: set[str] = set()

    def longest(self, max_tokens: int) -> int:
        """Most tokens of a row in which the policy writes so many; results are assumed no longer than their calls."""
        return 2 * max_tokens

    def check(self, policy: Plays, stop: Sequence[str]) -> None:
        """Refuse a policy without turns, and stop strings that a call would split."""
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
        """`repeats` completions of each prompt, as in `Writes.generate`, and their texts up to a stop string.

        The tool's tokens have mask False. rollout/tool_calls and rollout/tool_errors [P, G] count calls per row.
        """
        calling = Calling(self, stop, len(prompts) * repeats)
        batch = conversing(policy).converse(prompts, calling, repeats, stop=(*stop, CALL), **how)
        del batch["turn_end"]
        note(batch, tool_calls=calling.made, tool_errors=calling.failed)
        return batch, self.noted(policy, batch, stop)

    def ends(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[tuple[str, int]]:
        """Each text including the tool's, and its end at a stop string that the policy wrote."""
        last = TensorDict({"action": batch["action"], "mask": last_turn(batch["mask"])}, batch.batch_size)
        both = zip(conversing(policy).transcript(batch), policy.decode(last), strict=True)
        return [(text, len(text) - len(turn) + len(cut(turn, stop))) for text, turn in both]

    def result(self, asked: str) -> tuple[str, bool]:
        """The text that the tool writes, and whether the call failed."""
        try:
            return self.tool(asked)[:RESULT] + CLOSE, False
        except NoResult:  # a mistake of the model, not of the tool
            return NOTHING + CLOSE, True
        except Failed as error:
            if str(error) not in self.told and len(self.told) < 10:
                self.told.add(str(error))
                warn(f"env.tool={self.name}: {error}; the model reads {NOTHING}{CLOSE}")
            return NOTHING + CLOSE, True


class Calling:
    """Answers and counts the calls in the rows of one rollout."""

    def __init__(self, calls: Calls, stop: Sequence[str], rows: int) -> None:
        self.calls, self.stop = calls, stop
        self.made, self.failed = [0] * rows, [0] * rows
        self.begun = [""] * rows  # the text behind the last "=" of each row: a token may be "=<<"

    def __call__(self, rows: Sequence[int], texts: Sequence[str]) -> list[str | None]:
        """The result where `=` follows an open `<<`; None after a stop string; else ""."""
        return [self._answer(row, text) for row, text in zip(rows, texts, strict=True)]

    def _answer(self, row: int, text: str) -> str | None:
        if cut(text, self.stop) != text:
            return None
        text = self.begun[row] + text
        asked = asked_for(text)
        self.begun[row] = text.rpartition(CALL)[2]
        if asked is None:  # a text with an end token is over; one at the limit of tokens is truncated
            return ""
        written, failed = self.calls.result(asked)
        self.made[row] += 1
        self.failed[row] += failed
        return data(written)


def last_turn(mask: Tensor) -> Tensor:
    """The part of each row's own tokens after the last reply. mask and result: [..., T]."""
    steps = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    last = (mask * steps).amax(-1, keepdim=True)
    answered = (~mask * steps * (steps < last)).amax(-1, keepdim=True)
    return mask & (steps > answered)


def asked_for(text: str) -> str | None:
    """The argument of a call where the text ends in `<<...=`; None otherwise."""
    before, call, after = text.partition(CALL)
    _, opened, asked = before.rpartition(OPEN)
    return asked if call and opened and not after and CLOSE not in asked else None
