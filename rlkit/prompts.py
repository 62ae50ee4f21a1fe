"""Prompts: texts that know which of their parts are data, and the turns of a conversation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

QUESTION = "{question}"
Role = Literal["system", "user", "assistant"]
Spans = tuple[tuple[int, int], ...]
# Arguments: the indices of rows, and the turn that each just ended. Returns for each row the reply that it reads; None:
# the conversation is over; "": the row writes on, unless an end token stands there.
Reply = Callable[[Sequence[int], Sequence[str]], Sequence[str | None]]


class Prompt(str):
    """A text of which some parts (start, end) are data: what looks like a special token there is ordinary text.

    turns: the conversation that it was rendered from; empty for a plain text.
    """

    data: Spans
    turns: "tuple[Turn, ...]"

    def __new__(cls, text: str, data: Spans = (), turns: "tuple[Turn, ...]" = ()) -> "Prompt":
        made = super().__new__(cls, text)
        made.data, made.turns = data, turns
        return made

    def holds(self, start: int, end: int) -> bool:
        """Whether a part of the text contains data."""
        return any(first < end and start < last for first, last in self.data)

    def part(self, start: int, end: int | None = None) -> "Prompt":
        """The text from start to end, with its data marked, and the conversation that it came from."""
        end = len(self) if end is None else end
        spans = ((max(first, start) - start, min(last, end) - start) for first, last in self.data)
        return Prompt(str(self)[start:end], tuple(span for span in spans if span[0] < span[1]), self.turns)

    def trimmed(self) -> "Prompt":
        """The text without white space at its ends."""
        return self.part(len(self) - len(self.lstrip()), len(self.rstrip()))


@dataclass(frozen=True)
class Turn:
    """One turn of a conversation."""

    role: Role
    content: Prompt


def data(text: str) -> Prompt:
    """A text that is entirely data."""
    return Prompt(text, ((0, len(text)),) if text else ())


def joined(parts: Iterable[str]) -> Prompt:
    """The concatenation of texts, with the data of each marked."""
    text, spans = "", []
    for part in parts:
        if isinstance(part, Prompt):
            spans += [(len(text) + start, len(text) + end) for start, end in part.data]
        text += part
    return Prompt(text, tuple(spans))


def rendered(text: str) -> bool:
    """Whether a chat template wrote this text."""
    return isinstance(text, Prompt) and bool(text.turns)


def filled(template: str, question: str) -> Prompt:
    """The template with the question, marked as data, in place of each {question}."""
    first, *rest = template.split(QUESTION)
    return joined([first, *(part for following in rest for part in (data(question), following))])


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string in it."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]
