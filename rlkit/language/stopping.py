"""Stop strings: a completion ends with the token that completes one of them in its text."""

from collections.abc import Callable, Iterator, Sequence

Rows = list[list[int]]
EVERY = 8  # steps between two searches during generation


class Stopping:
    """Finds stop strings in rows of tokens.

    During generation, rows are searched now and then, so that they end early. The end of each row is found afterwards,
    token by token, and does not depend on when it was searched.
    """

    def __init__(self, texts: Sequence[str], decode: Callable[[Rows], list[str]]) -> None:
        self.texts, self.decode = tuple(texts), decode
        self._may_end: dict[int, bool] = {}
        self.window = EVERY + max(len(text.encode()) for text in texts)  # a token has at least one byte

    def found(self, rows: Rows) -> list[bool]:
        """Whether the text of each row contains a stop string."""
        return [any(stop in text for stop in self.texts) for text in self.decode(rows)]

    def may_end(self, token: int) -> bool:
        """Whether a stop string can end in this token: it holds the last letter of one, or part of a letter."""
        if token not in self._may_end:
            text = self.decode([[token, token]])[0]  # some decoders drop the space before the first token
            whole = text.strip() and "\ufffd" not in text
            self._may_end[token] = not whole or any(stop[-1] in text for stop in self.texts)
        return self._may_end[token]

    def lately(self, rows: Rows) -> list[bool]:
        """The same for stop strings within the last EVERY tokens: the ends of rows are decoded first."""
        likely = self.found([row[-self.window :] for row in rows])
        sure = iter(self.found([row for row, maybe in zip(rows, likely, strict=True) if maybe]))
        return [maybe and next(sure) for maybe in likely]

    def lengths(self, rows: Rows) -> list[int | None]:
        """The smallest number of tokens with which each row's text contains a stop string; None where it never does.

        A later token may change the text before it: in some decoders, half of a letter turns all bytes before it into
        U+FFFD. So every token in which a stop string may end is tried.
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
