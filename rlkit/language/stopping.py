"""Stop strings: a completion ends with the token that completes one of them in its text."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

Rows = list[list[int]]
EVERY = 8  # steps between two looks at what is being written


class Stopping:
    """Finds stop strings in rows of tokens.

    While rows are written it is asked now and then, so that they end early; where each one ends is decided afterwards,
    token by token, and does not depend on when it was asked.
    """

    def __init__(self, texts: Sequence[str], decode: Callable[[Rows], list[str]]) -> None:
        self.texts, self.decode = tuple(texts), decode
        self._may_end: dict[int, bool] = {}
        self.window = EVERY + max(len(text.encode()) for text in texts)  # a token is a byte at least

    def found(self, rows: Rows) -> list[bool]:
        """Whether a stop string is in the text of each row."""
        return [any(stop in text for stop in self.texts) for text in self.decode(rows)]

    def may_end(self, token: int) -> bool:
        """Whether a stop string can end in this token: it has a last letter of one, or some of a letter."""
        if token not in self._may_end:
            text = self.decode([[token]])[0]
            whole = text.strip() and "\ufffd" not in text
            self._may_end[token] = not whole or any(stop[-1] in text for stop in self.texts)
        return self._may_end[token]

    def lately(self, rows: Rows) -> list[bool]:
        """The same, where it was not there EVERY tokens ago: the ends of the rows are looked at first."""
        likely = self.found([row[-self.window :] for row in rows])
        sure = iter(self.found([row for row, maybe in zip(rows, likely, strict=True) if maybe]))
        return [maybe and next(sure) for maybe in likely]

    def lengths(self, rows: Rows) -> list[int | None]:
        """With how many tokens each row's text holds a stop string first; None where it never does."""
        return [self._length(row) if there else None for row, there in zip(rows, self.found(rows), strict=True)]

    def _length(self, row: list[int]) -> int:
        # What is in a text stays in it when tokens follow, so the first length can be searched for by halves. Half of a
        # letter does not, which is shown as U+FFFD: that is no stop string.
        return bisect_left(range(len(row)), True, key=lambda length: self.found([row[:length]])[0])
