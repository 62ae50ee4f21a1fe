"""Stop strings: a completion ends with the token that completes one of them in its text."""

from collections.abc import Callable, Iterator, Sequence

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
            text = self.decode([[token, token]])[0]  # some decoders take the space from the first token
            whole = text.strip() and "\ufffd" not in text
            self._may_end[token] = not whole or any(stop[-1] in text for stop in self.texts)
        return self._may_end[token]

    def lately(self, rows: Rows) -> list[bool]:
        """The same, where it was not there EVERY tokens ago: the ends of the rows are looked at first."""
        likely = self.found([row[-self.window :] for row in rows])
        sure = iter(self.found([row for row, maybe in zip(rows, likely, strict=True) if maybe]))
        return [maybe and next(sure) for maybe in likely]

    def lengths(self, rows: Rows) -> list[int | None]:
        """With how many tokens each row's text holds a stop string first; None where it never does.

        A text may lose letters when tokens follow: half of a letter makes U+FFFD of all bytes before it, in some
        decoders. So every token is tried that a stop string may end in.
        """
        found: list[int | None] = [None] * len(rows)
        texts = self.decode(rows)
        may_hold = [any(stop in text for stop in (*self.texts, "\ufffd")) for text in texts]
        ends = {i: self._ends(row) for i, row in enumerate(rows) if may_hold[i]}
        while open_ := [(i, length) for i, left in ends.items() if (length := next(left, None)) is not None]:
            there = self.found([rows[i][:length] for i, length in open_])
            for (i, length), is_there in zip(open_, there, strict=True):
                if is_there:
                    found[i] = length
            ends = {i: ends[i] for i, _ in open_ if found[i] is None}
        return found

    def _ends(self, row: list[int]) -> Iterator[int]:
        return (length for length, token in enumerate(row, 1) if self.may_end(token))
